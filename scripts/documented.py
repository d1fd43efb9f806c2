"""What docs/metrics.md says exists: for the scripts that check rules and dashboards."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What Prometheus itself adds, and what it writes for alerts.
NOT_OURS = {"up": set(), "ALERTS": {"alertname", "alertstate", "severity"}}
# Labels of every series, given by the scrape.
SCRAPED = {"job", "instance"}


def families():
    """The names in docs/metrics.md, with their type and labels."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \|", (ROOT / "docs/metrics.md").read_text(encoding="utf-8"), re.M)
    return {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def series():
    """The names of all series, those of histograms included, with their labels."""
    found = {name: set(labels) for name, labels in NOT_OURS.items()}
    for name, (kind, labels) in families().items():
        if kind == "histogram":
            found.update({name + "_bucket": labels | {"le"}, name + "_sum": labels, name + "_count": labels})
        else:
            found[name] = labels
    return found


def names_in(expression):
    """The metrics that an expression of PromQL names."""
    text = re.sub(r'"[^"]*"', '""', expression)
    return set(re.findall(r"\b(?:(?:dirkeeper|process)_\w+|up|ALERTS)\b(?!\s*\()", text))


def faults_in(expression, known):
    """Metrics that do not exist, and labels that the named metric or no metric of the expression has."""
    faults = [f"{name} is no metric" for name in sorted(names_in(expression) - set(known))]
    if faults:
        return faults
    for name, selector in re.findall(r"\b(\w+)\{(.*?)\}", expression):
        labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', '""', selector)))
        faults += [f"{name} has no label {label}" for label in sorted(labels - known.get(name, set()) - SCRAPED)]
    of_all = SCRAPED.union(*(known[name] for name in names_in(expression)))
    for listed in re.findall(r"\b(?:by|on|ignoring|without)\s*\(([\w, ]*)\)", expression):
        faults += [f"no metric here has the label {label}" for label in sorted(set(listed.split(", ")) - of_all)]
    return faults
