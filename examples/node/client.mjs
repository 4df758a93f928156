// node client.mjs insert ID EXPRESSION [--circle=LON,LAT,KM] [--session NAME]
// node client.mjs delete ID
// node client.mjs publish < posts.jsonl          lines with lon, lat, text; id, time_ms, attributes
// node client.mjs subscribe [--session NAME] [--state FILE] [--limit N]
//
// Each command also has the options --server HOST:PORT, --token-file FILE, --tls-ca FILE,
// --tls-cert FILE and --tls-key FILE. Prints one JSON object per line.

import fs from 'node:fs';
import readline from 'node:readline';
import { parseArgs } from 'node:util';
import { Client } from './ps2stream.mjs';

const BATCH = 1000; // lines per publication

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    server: { type: 'string', default: 'localhost:7077' },
    session: { type: 'string', default: 'default' },
    circle: { type: 'string' },
    state: { type: 'string' },
    limit: { type: 'string', default: 'Infinity' },
    'token-file': { type: 'string' },
    'tls-ca': { type: 'string' },
    'tls-cert': { type: 'string' },
    'tls-key': { type: 'string' },
  },
});

const print = (value) => console.log(JSON.stringify(value));

const commands = {
  async insert(client, id, expression = '') {
    const [lon, lat, radius_km] = values.circle?.split(',').map(Number) ?? [];
    const region = values.circle && { circle: { lon, lat, radius_km } };
    print({ lsn: await client.insert({ id, expression, region, session: values.session }) });
  },

  async delete(client, id) {
    print({ lsn: await client.remove(id) });
  },

  async publish(client) {
    for await (const { accepted, partition, first_offset, lsn } of client.publish(batches())) {
      print({ accepted, partition, first_offset, lsn });
    }
  },

  // Continues from the cursor in the file --state; without that file, the last batches may be sent
  // again. Printing and storing the cursor are two steps: after a crash between them, a batch is
  // printed again. A program that stores both in one database, in one transaction, counts each match
  // once.
  async subscribe(client) {
    let left = Number(values.limit);
    for await (const { cursor, matches, gap } of client.deliver(values.session, kept())) {
      if (gap) print({ gap });
      matches.forEach(print);
      if (values.state) keep(cursor);
      left -= matches.length;
      if (left <= 0) break;
    }
  },
};

async function* batches() {
  let batch = [];
  for await (const line of readline.createInterface({ input: process.stdin })) {
    if (line.trim()) batch.push(JSON.parse(line));
    if (batch.length === BATCH) {
      yield batch;
      batch = [];
    }
  }
  if (batch.length) yield batch;
}

function kept() {
  const there = values.state && fs.existsSync(values.state);
  return there ? JSON.parse(fs.readFileSync(values.state, 'utf8')) : null;
}

function keep(cursor) {
  fs.writeFileSync(`${values.state}.new`, JSON.stringify(cursor));
  fs.renameSync(`${values.state}.new`, values.state);
}

const [name, ...rest] = positionals;
if (!Object.hasOwn(commands, name ?? '')) {
  console.error('expected one of: insert, delete, publish, subscribe');
  process.exit(2);
}
const tokenFile = values['token-file'];
const client = new Client({
  server: values.server,
  token: tokenFile && fs.readFileSync(tokenFile, 'utf8').trim(),
  tlsCa: values['tls-ca'],
  tlsCert: values['tls-cert'],
  tlsKey: values['tls-key'],
});
try {
  await commands[name](client, ...rest);
} catch (error) {
  console.error(JSON.stringify({ error: error.details ?? error.message, code: error.code }));
  process.exitCode = 1;
} finally {
  client.close();
}
