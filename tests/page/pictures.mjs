// Writes the pictures of docs/page.md: node pictures.mjs BINARY. Shown is a node in trouble: one directory full, one
// almost full, one gone, one as it should be.

import * as fs from 'node:fs';

import { Stage, until } from './stage.mjs';

const FOLDER = 'docs/pictures';
// A picture in a repository is loaded with each clone.
const MOST_BYTES = 150_000;
const SHOTS = [
  { file: 'page-light.png', colorScheme: 'light', viewport: { width: 820, height: 1060 } },
  { file: 'page-dark.png', colorScheme: 'dark', viewport: { width: 820, height: 1060 } },
  { file: 'page-phone.png', colorScheme: 'light', viewport: { width: 360, height: 740 } },
];

const dirs = { journal: 'journal', 'ledger-1': 'ledger', 'ledger-2': 'ledger', 'ledger-3': 'ledger' };
// In a mount name space of its own, so that the paths are such as bookies have.
const stage = await Stage.open(process.argv[2], dirs, [], '/mnt');

// Steps of a line of the last hours; the agent looks each five seconds.
const STEPS = [
  { 'ledger-1': 0.52, 'ledger-2': 0.7, 'ledger-3': 0.4, journal: 0.2 },
  { 'ledger-1': 0.66, 'ledger-2': 0.78, 'ledger-3': 0.4, journal: 0.31 },
  { 'ledger-1': 0.81, 'ledger-2': 0.74, 'ledger-3': 0.41, journal: 0.22 },
  { 'ledger-1': 0.92, 'ledger-2': 0.86, 'ledger-3': 0.4, journal: 0.34 },
  { 'ledger-1': 0.97, 'ledger-2': 0.93, 'ledger-3': 0.4, journal: 0.25 },
];

try {
  const browser = await stage.browser();
  const page = await browser.newPage();
  await page.goto(stage.url);
  const points = async () => {
    const line = page.locator('#dir-list > li', { hasText: stage.place('ledger-1') }).locator('.spark polyline');
    return (await line.count()) === 0 ? 1 : (await line.first().getAttribute('points')).split(' ').length;
  };
  for (const [at, step] of STEPS.entries()) {
    for (const [name, ratio] of Object.entries(step)) stage.fill(name, ratio);
    await until('the line is longer', async () => (await points()) > at + 1);
  }
  stage.unmount('ledger-3');
  const gone = page.locator('#dir-list > li', { hasText: stage.place('ledger-3') });
  await until('it is vanished', async () => /vanished/i.test(await gone.innerText()));
  await page.close();
  fs.mkdirSync(FOLDER, { recursive: true });
  for (const { file, ...options } of SHOTS) {
    const context = await browser.newContext(options);
    const shot = await context.newPage();
    await shot.goto(stage.url);
    await until('the page is live', () => shot.locator('html.scripted[data-link=ok]').count());
    // As somebody leaves it who looks into the full one.
    await shot.evaluate(() => {
      for (const details of document.querySelectorAll('#dir-list > li > details')) {
        details.open = details.dataset.state === 'full';
      }
    });
    await shot.screenshot({ path: `${FOLDER}/${file}` });
    const { size } = fs.statSync(`${FOLDER}/${file}`);
    if (size > MOST_BYTES) throw new Error(`${file} has ${size} bytes`);
    console.log(`${FOLDER}/${file}: ${size} bytes`);
    await context.close();
  }
} finally {
  await stage.close();
}
