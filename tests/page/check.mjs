// Looks at the status page of a real agent with a real browser, as a reader does: node check.mjs BINARY

import assert from 'node:assert/strict';
import * as fs from 'node:fs';

import { AXE, Stage, TOKEN, until } from './stage.mjs';

// From the agent's event to the page; three times of it where others use the machine too.
const SHOWN_WITHIN = process.env.PAGE_STRICT === '1' ? 2_000 : 6_000;

const SCRIPT = '<script>alert(1)</script>';
const LONG = 'n'.repeat(255);
// Nobody listens there: a bookie that is down, whose mode can be ordered all the same.
const BOOKIE = ['[bookie]\nid = "127.0.0.1:3181"\nadmin_url = "http://127.0.0.1:9"'];

const stage = await Stage.open(
  process.argv[2],
  { ledger: 'ledger', journal: 'journal', [SCRIPT]: 'ledger', [LONG]: 'index' },
  BOOKIE,
);

// What must not be: each entry ends the check.
const faults = [];
// A refusal and a server that is gone are told by the browser too; the page is expected to live with both.
const EXPECTED = /status of 40[0-9]|status of 50[0-9]|ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE/;

async function open(browser, options = {}) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.loads = 0;
  page.on('load', () => (page.loads += 1));
  page.on('console', (message) => {
    const bad = ['error', 'warning'].includes(message.type()) && !EXPECTED.test(message.text());
    if (bad) faults.push(`console: ${message.text()}`);
  });
  page.on('pageerror', (error) => faults.push(`error in the page: ${error.message}`));
  page.on('dialog', (dialog) => {
    faults.push(`a dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on('request', (request) => {
    const own = request.url().startsWith(stage.url) || request.url().startsWith('data:');
    if (!own) faults.push(`a request to ${request.url()}`);
  });
  await page.goto(stage.url);
  await page.evaluate(() => {
    globalThis.violations = [];
    // All that a screen reader is told: the next event takes the place of one in the page.
    globalThis.told = [];
    const said = document.querySelector('#said');
    new MutationObserver(() => told.push(said.textContent)).observe(said, { childList: true, subtree: true });
    document.addEventListener('securitypolicyviolation', (event) => violations.push(event.violatedDirective));
  });
  return page;
}

const card = (page, name) => page.locator('#dir-list > li', { hasText: stage.place(name) }).first();
const word = (page, name) => card(page, name).locator('.word').innerText();
const linkIs = (page, state) =>
  until(`the page says that the link is ${state}`, async () =>
    (await page.locator('html').getAttribute('data-link')) === state);

// Waits for an event of the agent, and then for the word on the page.
async function shows(page, name, event, expected) {
  const seen = await until(`the agent tells ${event}`, async () => {
    const all = await stage.events();
    return all.findLast((one) => one.dir === stage.place(name) && one.event === event);
  });
  const what = `${name} is ${expected} on the page`;
  await until(what, async () => (await word(page, name)).toLowerCase().includes(expected), SHOWN_WITHIN);
  await until(`${event} is in the list`, () => page.locator(`#e${seen.seq}`).isVisible(), SHOWN_WITHIN);
  const late = Date.now() - Date.parse(seen.time);
  console.log(`     ${event}: on the page ${late} ms after the event`);
}

const cases = {
  async 'a directory becomes full and writable again, without a reload'({ page }) {
    await until('the page is live', async () => (await word(page, 'ledger')).includes('WRITABLE'));
    stage.fill('ledger', 0.97);
    await shows(page, 'ledger', 'diskFull', 'full');
    const told = await page.evaluate(() => globalThis.told.join('\n'));
    assert.match(told, /diskFull/, 'a screen reader is told');
    assert.match(await page.title(), /critical/);
    const first = await page.locator('#dir-list > li').first().innerText();
    assert.ok(first.includes(stage.place('ledger')), 'what is in trouble comes first');
    stage.fill('ledger', 0.1);
    await shows(page, 'ledger', 'diskWritable', 'writable');
    assert.equal(page.loads, 1);
    await until('there is a line of the last hours', () => card(page, 'ledger').locator('.spark polyline').count());
    const label = await card(page, 'ledger').locator('.spark').getAttribute('aria-label');
    assert.match(label, /^usage from [\d.]+ % to [\d.]+ % in the last \d+/);
  },

  async 'names are text, whatever they are'({ page }) {
    await until('the name with a script is shown', () => card(page, SCRIPT).isVisible());
    assert.equal(await page.locator('main script').count(), 0);
    const shown = await card(page, LONG).locator('.path').first().innerText();
    assert.equal(shown, stage.place(LONG));
  },

  async 'what a reader has done to the page stays'({ page }) {
    const details = card(page, 'journal').locator('> details');
    await details.locator('> summary').click();
    assert.equal(await details.getAttribute('open'), null);
    const filter = page.locator('form.filter[data-list=dir-list] input');
    await filter.fill('/led');
    await page.evaluate(() => { document.querySelector('#clock').marked = true; });
    const clock = await page.locator('#clock time').getAttribute('datetime');
    await until('news arrive', async () => (await page.locator('#clock time').getAttribute('datetime')) !== clock);
    assert.equal(await details.getAttribute('open'), null);
    assert.equal(await card(page, 'journal').isVisible(), false, 'the filter holds');
    assert.equal(await card(page, 'ledger').isVisible(), true);
    assert.ok(await filter.evaluate((element) => element === document.activeElement), 'the focus stays');
    assert.ok(await page.evaluate(() => document.querySelector('#clock').marked), 'elements stay');
    assert.match(await page.locator('form.filter[data-list=dir-list] output').innerText(), /1 of 4 shown/);
    await filter.fill('');
  },

  async 'by keyboard alone'({ browser }) {
    const page = await open(browser);
    await until('the page is live', () => page.locator('html.scripted').count());
    const reached = [];
    for (let press = 0; press < 60; press += 1) {
      await page.keyboard.press('Tab');
      const at = await page.evaluate(() => {
        const { activeElement: element } = document;
        const style = getComputedStyle(element);
        return {
          name: element.id || element.name || element.dataset.order || element.className || element.nodeName,
          list: element.closest('form')?.dataset.list ?? '',
          seen: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
        };
      });
      if (at.name === 'BODY') break;
      assert.ok(at.seen, `the focus can be seen on ${at.name}`);
      reached.push(`${at.list} ${at.name}`.trim());
      if (at.name === 'SUMMARY' && !reached.includes('toggled')) {
        const open = () => page.evaluate(() => document.activeElement.parentElement.open);
        const before = await open();
        await page.keyboard.press('Enter');
        assert.notEqual(await open(), before, 'Enter opens and closes details');
        await page.keyboard.press('Enter');
        reached.push('toggled');
      }
      if (at.name === 'token') await page.keyboard.type('typed');
    }
    assert.equal(reached[0], 'skip');
    const order = ['dir-list text', 'dir-list severity', 'SUMMARY', 'probe', 'event-list text', 'token', 'mode', 'reason'];
    const places = order.map((name) => reached.indexOf(name));
    assert.ok(places.every((place) => place >= 0), `all are reached: ${reached.join(', ')}`);
    assert.deepEqual(places, [...places].sort((a, b) => a - b), `in the order of the page: ${reached.join(', ')}`);
    assert.equal(await page.locator('#token').inputValue(), 'typed');
    await page.context().close();
  },

  async 'orders need the token'({ page }) {
    const answer = page.locator('#answer');
    const said = (pattern) => until(`the answer is ${pattern}`, async () => assert.match(await answer.innerText(), pattern) ?? true);
    const all = page.getByRole('button', { name: 'Probe all directories now' });
    await all.click();
    await said(/Refused: this needs the token of control_token_file/);
    await page.locator('#token').fill('wrong');
    await all.click();
    await said(/Refused: the token is not the one/);
    await page.locator('#token').fill(TOKEN);
    await all.click();
    await said(/Taken/);
    await card(page, 'journal').locator('> details').evaluate((details) => { details.open = true; });
    await card(page, 'journal').locator('button[data-order=probe]').click();
    await said(/Taken/);
    const mode = page.locator('#mode-form');
    await mode.locator('button').click();
    await said(/Refused: .*reason/);
    // Taken by the server and answered by the keeper of the mode, which keeps no order without ZooKeeper.
    await mode.locator('[name=reason]').fill('disk <swap>');
    await mode.locator('[name=reason]').press('Enter');
    await said(/Refused: no ZooKeeper is configured: the order could not be kept/);
    await mode.locator('[name=mode]').selectOption({ label: 'release' });
    await answer.evaluate((element) => { element.textContent = ''; });
    await mode.locator('button').click();
    await said(/Refused: no ZooKeeper|Taken/);
    const kept = await page.evaluate(() => JSON.stringify([localStorage, sessionStorage, document.cookie, location.href]));
    assert.equal(kept, JSON.stringify([{}, {}, '', stage.url]), 'nothing is kept outside the page');
  },

  async 'an agent that is killed, and its next start'({ page }) {
    const loads = page.loads;
    await stage.kill('SIGKILL');
    await linkIs(page, 'lost');
    const banner = page.locator('#trouble');
    assert.match(await banner.innerText(), /Connection to the agent lost\. Shown is what was true at \d{4}-.*Z\..*ago/s);
    assert.ok(await card(page, 'ledger').isVisible(), 'the last truth stays');
    await stage.start();
    await linkIs(page, 'ok');
    await until('the banner is gone', async () => (await banner.innerText()).trim() === '');
    stage.fill('journal', 0.93);
    await shows(page, 'journal', 'diskAlmostFull', 'almost full');
    stage.fill('journal', 0.1);
    await shows(page, 'journal', 'diskBelowWarn', 'writable');
    assert.equal(page.loads, loads);
  },

  async 'an agent that is stopped'({ page }) {
    stage.agent.kill('SIGSTOP');
    const begin = performance.now();
    await linkIs(page, 'lost');
    console.log(`     stopped: told after ${Math.round(performance.now() - begin)} ms`);
    stage.agent.kill('SIGCONT');
    await linkIs(page, 'ok');
  },

  async 'a loop that does not move'({ browser }) {
    const context = await browser.newContext();
    const still = await context.newPage();
    // A loop cannot be held from outside: the stream is one whose messages come, while their time stands still.
    await still.addInitScript(() => {
      globalThis.EventSource = class {
        constructor() {
          setInterval(() => {
            const news = { time: '2026-01-01T00:00:00.000Z', build: document.body.dataset.build, parts: {} };
            this.onmessage({ data: JSON.stringify(news) });
          }, 500);
        }
        close() {}
      };
    });
    await still.goto(stage.url);
    await until('it says that the loop is late', async () =>
      /monitor loop does not move/.test(await still.locator('#trouble').innerText()));
    await context.close();
  },

  async 'nothing to object for axe, light and dark, and nothing wider than a phone'({ browser }) {
    for (const colorScheme of ['light', 'dark']) {
      const page = await open(browser, { colorScheme, viewport: { width: 360, height: 740 }, reducedMotion: 'reduce' });
      await until('the page is live', () => page.locator('html.scripted').count());
      await page.evaluate(() => document.querySelectorAll('details').forEach((details) => { details.open = true; }));
      // The page's own rules forbid scripts of others, so this one is run by the debugger.
      await page.evaluate(fs.readFileSync(AXE, 'utf8'));
      const { violations } = await page.evaluate(() => globalThis.axe.run());
      const told = violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(' | ')}`);
      assert.deepEqual(told, [], colorScheme);
      const wide = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.ok(wide[0] <= wide[1], `${wide[0]} pixels in a window of ${wide[1]}`);
      await page.context().close();
    }
  },

  async 'all is there without scripts'({ browser }) {
    const context = await browser.newContext({ javaScriptEnabled: false });
    const page = await context.newPage();
    await page.goto(stage.url);
    assert.match(await word(page, 'ledger'), /WRITABLE/);
    assert.equal(await page.locator('form:visible, button:visible').count(), 0, 'nothing that does nothing');
    await context.close();
  },
};

let failed = 0;
try {
  const browser = await stage.browser();
  const page = await open(browser, { viewport: { width: 1100, height: 800 } });
  for (const [name, run] of Object.entries(cases).filter(([name]) => name.includes(process.argv[3] ?? ''))) {
    try {
      await run({ page, browser });
      faults.push(...(await page.evaluate(() => globalThis.violations.map((one) => `policy violated: ${one}`))));
      assert.deepEqual(faults.splice(0), [], 'what must not be');
      console.log(`ok   ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAIL ${name}\n     ${error.message}`);
    }
  }
  if (failed > 0) console.log(`the agent's log:\n${stage.tail()}`);
} finally {
  await stage.close();
}
process.exit(failed === 0 ? 0 : 1);
