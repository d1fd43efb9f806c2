// A real agent on real file systems of its own, and a browser that looks at its page. Has to run in a
// mount name space of its own (scripts/page-check makes one): the file systems end with it.

import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import * as fs from 'node:fs';
import { createRequire } from 'node:module';
import * as net from 'node:net';
import * as os from 'node:os';
import * as path from 'node:path';

// Where scripts/page-check has installed what package.json names.
const require = createRequire(path.join(process.env.PAGE_MODULES, 'package.json'));
const { chromium } = require('playwright-core');
export const AXE = require.resolve('axe-core/axe.min.js');

export const TOKEN = 'token-of-the-page-check';

// Longest wait for what must happen; this machine may be busy.
export const PATIENCE = 30_000;

// The state's disk of each directory, small enough to be filled at once.
const DISK_BYTES = 32 << 20;

const AS_ROOT = process.getuid() === 0 ? ['--no-sandbox'] : [];

// What keeps a browser from asking anybody but the page's server.
const CHROMIUM = [
  ...AS_ROOT,
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

export async function until(what, condition, patience = PATIENCE) {
  const end = performance.now() + patience;
  let last;
  while (performance.now() < end) {
    try {
      last = await condition();
      if (last) return last;
    } catch (error) {
      last = error.message;
    }
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`${what}: not within ${patience / 1000} s (last: ${last})`);
}

async function freePort() {
  const server = net.createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

export class Stage {
  // `dirs`: name of each directory and its role. `bookie`: lines of that section. `folder`: what is hidden by the
  // stage's own file system, for as long as the name space lasts.
  static async open(binary, dirs, bookie = [], folder = null) {
    const stage = new Stage();
    stage.binary = binary;
    stage.mounts = [];
    for (const signal of ['SIGINT', 'SIGTERM']) {
      process.once(signal, () => stage.close().finally(() => process.exit(130)));
    }
    stage.folder = folder ?? fs.mkdtempSync(path.join(os.tmpdir(), 'dirkeeper-page-'));
    if (folder) stage.mount(folder);
    stage.port = await freePort();
    stage.url = `http://127.0.0.1:${stage.port}/`;
    const token = path.join(stage.folder, 'token');
    fs.writeFileSync(token, TOKEN, { mode: 0o600 });
    const config = [
      `listen = "127.0.0.1:${stage.port}"`,
      `state_dir = "${stage.folder}/state"`,
      `control_token_file = "${token}"`,
      '[thresholds]\ndwell = "1s"\nhigh_priority_reserve = "1MiB"',
      '[probe]\ninterval = "1s"',
      ...bookie,
    ];
    for (const [name, role] of Object.entries(dirs)) {
      const place = path.join(stage.folder, name);
      stage.mount(place);
      // As a bookie leaves it, whose agent probes only what is initialised.
      fs.mkdirSync(path.join(place, 'current'));
      fs.writeFileSync(path.join(place, 'current', 'VERSION'), '4\nbookieHost: "127.0.0.1:3181"\n');
      config.push(`[[dir]]\npath = ${JSON.stringify(place)}\nrole = "${role}"`);
    }
    fs.writeFileSync(path.join(stage.folder, 'dirkeeper.toml'), config.join('\n'));
    stage.log = fs.openSync(path.join(stage.folder, 'log'), 'a');
    await stage.start();
    return stage;
  }

  place(name) {
    return path.join(this.folder, name);
  }

  mount(place) {
    fs.mkdirSync(place, { recursive: true });
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${DISK_BYTES}`, 'page-check', place]);
    this.mounts.push(place);
  }

  unmount(name) {
    execFileSync('umount', ['-l', this.place(name)]);
    this.mounts = this.mounts.filter((place) => place !== this.place(name));
  }

  // Fills a directory to this ratio of its disk.
  fill(name, ratio) {
    const { bsize, blocks, bfree } = fs.statfsSync(this.place(name));
    const file = path.join(this.place(name), 'data');
    const has = fs.existsSync(file) ? fs.statSync(file).size : 0;
    const bytes = Math.round(ratio * bsize * blocks - bsize * (blocks - bfree) + has);
    fs.writeFileSync(file, Buffer.alloc(Math.max(0, bytes), 7));
  }

  async start() {
    // Ended by the kernel with this check, should that be killed.
    const args = ['--pdeathsig', 'KILL', this.binary, 'run', '--config', path.join(this.folder, 'dirkeeper.toml')];
    this.agent = spawn('setpriv', args, { stdio: ['ignore', this.log, this.log] });
    this.ended = once(this.agent, 'exit');
    await until('the agent is ready', async () => {
      if (this.agent.exitCode !== null) throw new Error(`it ended with ${this.agent.exitCode}`);
      return (await fetch(`${this.url}readyz`)).ok;
    });
  }

  async kill(signal) {
    this.agent.kill(signal);
    await this.ended;
  }

  async events() {
    return (await (await fetch(`${this.url}api/v1/events?limit=1000`)).json()).events;
  }

  async browser() {
    this.chromium = await chromium.launch({
      executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
      args: CHROMIUM,
      // The stage ends it, and then all else.
      handleSIGINT: false,
      handleSIGTERM: false,
    });
    return this.chromium;
  }

  async close() {
    await this.chromium?.close();
    if (this.agent && this.agent.exitCode === null && this.agent.signalCode === null) {
      this.agent.kill('SIGCONT');
      this.agent.kill('SIGTERM');
      await this.ended;
    }
    fs.closeSync(this.log);
    const hidden = this.mounts.includes(this.folder);
    for (const place of this.mounts.toReversed()) execFileSync('umount', ['-l', place]);
    if (!hidden) fs.rmSync(this.folder, { recursive: true, force: true });
  }

  tail() {
    return fs.readFileSync(path.join(this.folder, 'log'), 'utf8').slice(-3000);
  }
}
