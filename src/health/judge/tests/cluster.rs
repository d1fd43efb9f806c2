//! The whole cluster.

use super::*;

/// apache/pulsar#15332.
#[test]
fn the_first_bookie_over_warn_is_told_until_none_is() {
    let world = run(
        settings(),
        "0 cluster 1 b1=w b2=w b3=w?
         1 cluster 1 b1=w b2=wo b3=w?
         2 cluster 1 b1=wo b2=wo b3=w?
         3 cluster 1 b1=w b2=w b3=w
         4 cluster 1 b1=wo b2=w b3=w",
    );
    assert_eq!(world.events(), ["1 clusterOverWarn", "4 clusterOverWarn"]);
    assert_eq!(
        world.told[0].1.message,
        "1 of 3 bookies has a directory over warn (b2); of one other nobody says how it stands"
    );
}

#[test]
fn headroom_is_low_when_one_more_loss_leaves_too_few() {
    let world = run(
        settings(),
        "0 cluster 2 b1=w b2=w b3=w
         1 cluster 2 b1=w b2=w b3=r
         2 cluster 2 b1=w b2=r b3=r
         3 cluster 2 b1=w b2=w b3=w
         4 cluster 3 b1=w b2=w b3=wr",
    );
    assert_eq!(
        world.events(),
        ["1 clusterHeadroomLow", "4 clusterHeadroomLow"]
    );
    assert_eq!(
        world.told[0].1.message,
        "the cluster has 2 writable of 3 bookies, and the largest ensemble in use is 2: with one less, such ledgers \
         cannot be made"
    );
    assert!(
        world.message().ends_with("such ledgers cannot be made now"),
        "{}",
        world.message()
    );
}

#[test]
fn a_group_counts_by_itself_if_it_is_large_enough_for_the_ensemble() {
    let world = run(
        settings(),
        "0 cluster 2 b1=w@g b2=w@g b3=w@g b4=w@h b5=w
         1 cluster 2 b1=w@g b2=w@g b3=r@g b4=w@h b5=w",
    );
    assert_eq!(world.events(), ["1 clusterHeadroomLow"]);
    assert!(
        world
            .message()
            .starts_with("the group g has 2 writable of 3")
    );
}

/// What is told once is shown as long as it lasts.
#[test]
fn headroom_and_orphans_are_levels_too() {
    let low = |lines: &str| {
        let places = run(settings(), lines).view().headroom_low;
        let places = places.iter().map(|(name, low)| format!("{name:?} {low}"));
        places.collect::<Vec<_>>().join(", ")
    };
    let well = "0 cluster 2 b1=w@g b2=w@g b3=w@g b4=w@h b5=w";
    let lacking = format!("{well}\n1 cluster 2 b1=w@g b2=w@g b3=r@g b4=w@h b5=w\n9 -");
    // The group h could never make such ledgers.
    assert_eq!(low(well), r#""" false, "g" false"#);
    assert_eq!(low(&lacking), r#""" false, "g" true"#);
    assert_eq!(
        low(&format!("{lacking}\n{}", well.replacen('0', "10", 1))),
        low(well)
    );
    assert_eq!(low("0 cluster ? b1=w"), "");

    let orphaned = |lines: &str| run(settings(), lines).view().orphaned.join(" ");
    let held = "0 cluster 1 b1=w b2=rc? b3=rc\n";
    assert_eq!(orphaned(&format!("{held}59 -")), "");
    assert_eq!(orphaned(&format!("{held}500 -")), "b2");
    assert_eq!(
        orphaned(&format!("{held}500 cluster 1 b1=w b2=rc b3=rc")),
        ""
    );
}

#[test]
fn unknown_ensembles_say_nothing() {
    assert_eq!(run(settings(), "0 cluster ? b1=w").events(), [""; 0]);
}

#[test]
fn a_claim_without_an_agent_is_orphaned_after_a_minute() {
    let world = run(
        settings(),
        "0 cluster 1 b1=w b2=rc? b3=w b4=w?
         30 cluster 1 b1=w b2=rc b3=w
         40 cluster 1 b1=w b2=rc? b3=w
         70 cluster 1 b1=w b2=rc? b3=w
         200 cluster 1 b1=w b2=rc? b3=w",
    );
    assert_eq!(world.events(), ["100 claimOrphaned"]);
    assert!(world.message().starts_with("the bookie b2 is held"));
}
