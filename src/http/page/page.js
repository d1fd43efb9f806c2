// Keeps the status page up to date and sends orders. The server renders: what arrives are parts of the
// page as HTML in which everything from outside is escaped. This file only swaps them in, and says so
// when it hears nothing. The token is read from its field for each order and kept nowhere else.

// The server speaks at least every two seconds.
const SILENCE = 6000;
// The loop behind the server publishes each second.
const LATE = 5000;
// Between two tries to connect, in milliseconds; the last one is repeated.
const WAITS = [500, 1000, 2000, 4000, 8000, 15000];
// An order on the mode is answered within four seconds.
const ORDER_PATIENCE = 8000;
// Events told to a screen reader one by one; of more only the number.
const TOLD = 3;

const byId = (id) => document.getElementById(id);
const now = () => performance.now();

const link = {
  source: null, // the stream, if one is open
  heard: now(), // when it last said anything
  lost: false,
  retryAt: 0,
  tries: 0,
};
const shown = {
  time: byId('clock').querySelector('time').dateTime,
  since: now(), // when that time arrived
};
let newestEvent = newest();

function connect() {
  const source = new EventSource('page/live');
  link.source = source;
  link.heard = now();
  source.onmessage = (message) => {
    link.heard = now();
    link.lost = false;
    link.tries = 0;
    update(JSON.parse(message.data));
    tick();
  };
  source.onerror = () => drop();
}

// EventSource would try again by itself, at a pace of its own and also without being answered at all.
function drop() {
  link.source?.close();
  link.source = null;
  link.lost = true;
  link.retryAt = now() + WAITS[Math.min(link.tries, WAITS.length - 1)];
  link.tries += 1;
  tick();
}

function update(news) {
  if (news.build !== document.body.dataset.build) {
    location.reload();
    return;
  }
  if (news.time !== shown.time) {
    shown.time = news.time;
    shown.since = now();
  }
  const focused = document.activeElement;
  for (const [id, html] of Object.entries(news.parts)) {
    swap(id, html);
  }
  if (news.dirs) {
    arrange(byId('dir-list'), news.dirs.map(byId));
  }
  // A part that moves loses the focus.
  if (focused !== document.activeElement && focused.isConnected) {
    focused.focus({ preventScroll: true });
  }
  document.title = byId('now').dataset.title;
  document.querySelectorAll('form.filter').forEach(filter);
  tellEvents();
}

function swap(id, html) {
  const template = document.createElement('template');
  template.innerHTML = html;
  const fresh = template.content.firstElementChild;
  const old = byId(id);
  if (old) {
    morph(old, fresh);
  } else {
    byId('dir-list').append(fresh);
  }
}

// Makes the old element like the fresh one and keeps what a reader has done to it: focus, selection,
// scroll position, and whether details are open unless the state that they tell of has changed.
function morph(old, fresh) {
  if (old.nodeName !== fresh.nodeName || old.nodeType !== fresh.nodeType) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old.className === 'age') return;
  const kept = old.nodeName === 'DETAILS' && old.dataset.state === fresh.dataset.state ? 'open' : null;
  for (const { name } of [...old.attributes]) {
    if (name !== kept && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (name !== kept && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (fresh.firstElementChild?.id && fresh.nodeName === 'OL') {
    const known = new Map([...old.children].map((child) => [child.id, child]));
    arrange(old, [...fresh.children].map((child) => known.get(child.id) ?? child));
    return;
  }
  const before = [...old.childNodes];
  const after = [...fresh.childNodes];
  after.forEach((child, at) => (before[at] ? morph(before[at], child) : old.append(child)));
  before.slice(after.length).forEach((child) => child.remove());
}

// These children, in this order.
function arrange(parent, wanted) {
  const stay = new Set(wanted);
  for (const child of [...parent.children]) {
    if (!stay.has(child)) child.remove();
  }
  wanted.forEach((child, at) => {
    if (parent.children[at] !== child) parent.insertBefore(child, parent.children[at] ?? null);
  });
}

function newest() {
  return Number(byId('event-list').querySelector('[data-seq]')?.dataset.seq ?? 0);
}

function tellEvents() {
  const items = [...byId('event-list').querySelectorAll('[data-seq]')];
  const fresh = items.filter((item) => Number(item.dataset.seq) > newestEvent);
  newestEvent = newest();
  if (fresh.length === 0) return;
  const told = fresh.slice(0, TOLD).map((item) => item.querySelector('.what').textContent);
  if (fresh.length > TOLD) told.push(`and ${fresh.length - TOLD} more events`);
  byId('said').textContent = told.join('. ');
}

// What is wrong with the way to the agent, or with the agent. The age is not read aloud each second.
function trouble() {
  const box = byId('trouble');
  const time = shown.time.replace('T', ' ').replace(/\.\d+Z/, 'Z');
  const age = about((now() - shown.since) / 1000);
  let state = 'ok';
  let text = '';
  let detail = '';
  if (link.lost) {
    state = 'lost';
    text = `✖ Connection to the agent lost. Shown is what was true at ${time}.`;
    const wait = Math.max(0, Math.ceil((link.retryAt - now()) / 1000));
    detail = ` That was ${age} ago. ${link.source ? 'Trying again now.' : `Next try in ${wait}s.`}`;
  } else if (now() - shown.since > LATE) {
    state = 'late';
    text = `▲ The agent answers, but its monitor loop does not move. Shown is what was true at ${time}.`;
    detail = ` That was ${age} ago.`;
  }
  document.documentElement.dataset.link = state;
  const [what, more] = box.children;
  if (what.textContent !== text) what.textContent = text;
  more.textContent = detail;
}

// As the server writes it: seconds below two minutes, minutes below a day, else hours.
function about(seconds) {
  const all = Math.max(0, Math.floor(seconds));
  if (all < 120) return all < 60 ? `${all}s` : `1m ${all - 60}s`;
  const [days, hours, minutes] = [Math.floor(all / 86400), Math.floor(all / 3600) % 24, Math.floor(all / 60) % 60];
  if (days > 0) return `${days}d ${hours}h`;
  return hours > 0 ? `${hours}h ${minutes}m` : `${minutes}m`;
}

function ages() {
  const agent = Date.parse(shown.time) + now() - shown.since;
  for (const place of document.querySelectorAll('.age')) {
    const time = Date.parse(place.previousElementSibling.dateTime);
    const text = ` (${about((agent - time) / 1000)} ago)`;
    if (place.textContent !== text) place.textContent = text;
  }
}

function tick() {
  if (link.source && now() - link.heard > SILENCE) {
    drop();
    return;
  }
  if (!link.source && now() >= link.retryAt) connect();
  trouble();
  ages();
}

function filter(form) {
  const items = [...byId(form.dataset.list).children];
  const text = form.elements.text.value.trim().toLowerCase();
  const severity = form.elements.severity.value;
  let count = 0;
  for (const item of items) {
    const has = text === '' || item.textContent.toLowerCase().includes(text);
    const is = severity === '' || item.dataset.severity === severity;
    item.hidden = !(has && is);
    if (!item.hidden) count += 1;
  }
  const output = form.querySelector('output');
  const said = text === '' && severity === '' ? '' : `${count} of ${items.length} shown`;
  if (output.textContent !== said) output.textContent = said;
}

async function order(method, path, body) {
  const answer = byId('answer');
  answer.textContent = 'Asking the agent …';
  const headers = { 'Content-Type': 'application/json' };
  // Not as Authorization: a browser that had to log in sends its own there.
  const token = byId('token').value;
  if (token !== '') headers['X-Dirkeeper-Token'] = token;
  try {
    const signal = AbortSignal.timeout(ORDER_PATIENCE);
    const reply = await fetch(path, { method, headers, body: JSON.stringify(body), signal });
    const said = await reply.json();
    answer.textContent = reply.ok ? `✓ Taken. ${said.message ?? ''}` : `✖ Refused: ${said.error}`;
  } catch (error) {
    answer.textContent = `✖ No answer: ${error.message}. The order may still be carried out.`;
  }
}

function pressed(event) {
  const button = event.target.closest('button[data-order]');
  if (!button) return;
  const { order: what, dir } = button.dataset;
  if (what === 'accept' && !confirm(`Take the disk that is in ${dir} now as the right one?`)) return;
  order('POST', `api/v1/${what}`, dir === undefined ? {} : { dir });
}

function submitted(event) {
  event.preventDefault();
  if (event.target.id !== 'mode-form') return;
  const { mode, reason } = event.target.elements;
  const body = { mode: mode.value === '' ? null : mode.value };
  if (reason.value.trim() !== '') body.reason = reason.value.trim();
  order('PUT', 'api/v1/mode', body);
}

function start() {
  const [what, more] = [document.createElement('span'), document.createElement('span')];
  more.setAttribute('aria-hidden', 'true');
  byId('trouble').replaceChildren(what, more);
  document.documentElement.classList.add('scripted');
  document.addEventListener('click', pressed);
  document.addEventListener('submit', submitted);
  document.addEventListener('input', (event) => {
    const form = event.target.closest('form.filter');
    if (form) filter(form);
  });
  connect();
  tick();
  setInterval(tick, 1000);
}

start();
