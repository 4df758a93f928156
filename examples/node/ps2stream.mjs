// A client of PS2Stream from its protos alone: queries, publications, and a session's matches.

import { randomUUID } from 'node:crypto';
import fs from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import grpc from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';

const PROTOS = new URL('../../protos', import.meta.url).pathname;
const WINDOW = { batches: 256, bytes: 1 << 20 }; // what the service may send ahead, see Start
const DEADLINE_MS = 30_000;

// 64-bit numbers are strings, because a JavaScript number is exact only up to 2^53.
const definition = loadSync('ps2stream/v1/pubsub.proto', {
  includeDirs: [PROTOS],
  keepCase: true,
  longs: String,
  enums: String,
  defaults: true,
  oneofs: true,
});

// Credits count encoded bytes, which only the decoder sees.
const deliver = definition['ps2stream.v1.PubSub'].Deliver;
const decode = deliver.responseDeserialize;
deliver.responseDeserialize = (bytes) => Object.assign(decode(bytes), { size: bytes.length });

const { PubSub } = grpc.loadPackageDefinition(definition).ps2stream.v1;

// Options: server (HOST:PORT), token, and the PEM files tlsCa, tlsCert and tlsKey.
export class Client {
  constructor({ server, token, tlsCa, tlsCert, tlsKey }) {
    const read = (file) => (file ? fs.readFileSync(file) : null);
    const secure = Boolean(tlsCa || tlsCert);
    if (token && !secure && !/^(localhost|127\.[\d.]+|\[::1\]):\d+$/.test(server)) {
      throw new Error(`the token would travel in plaintext to ${server}; give --tls-ca`);
    }
    const credentials = secure
      ? grpc.credentials.createSsl(read(tlsCa), read(tlsKey), read(tlsCert))
      : grpc.credentials.createInsecure();
    this.metadata = new grpc.Metadata();
    if (token) this.metadata.set('authorization', `Bearer ${token}`);
    this.stub = new PubSub(server, credentials, { 'grpc.keepalive_time_ms': 30_000 });
  }

  close() {
    this.stub.close();
  }

  // Resolves to the query's LSN, once every later object is matched against the query. The call can
  // be repeated safely.
  async insert(query) {
    return (await this.call('InsertQuery', { query })).lsn;
  }

  // By the request id the service recognises a retry of a delete that has already happened.
  async remove(id) {
    return (await this.call('DeleteQuery', { id, request_id: randomUUID() })).lsn;
  }

  // Yields the receipts of batches of objects, in order. `attributes` of an object are numbers,
  // texts, booleans and Dates by name. If the service is full, a batch is sent again after the time
  // that the service named.
  async *publish(batches) {
    const stream = this.stub.PublishStream(this.metadata);
    const answers = stream[Symbol.asyncIterator]();
    for await (const objects of batches) {
      for (;;) {
        stream.write({ batch: { objects: objects.map(packObject) } });
        const { value: receipt, done } = await answers.next();
        if (done) throw new Error('the service ended the stream');
        if (!receipt.retry_after_ms) {
          yield receipt;
          break;
        }
        await sleep(receipt.retry_after_ms);
      }
    }
    stream.end();
    await answers.next();
  }

  call(method, request) {
    return new Promise((resolve, reject) => {
      const options = { deadline: Date.now() + DEADLINE_MS };
      this.stub[method](request, this.metadata, options, (error, answer) =>
        error ? reject(error) : resolve(answer),
      );
    });
  }

  // Yields the matches of a session in batches, each pair once: { cursor, matches, gap }. `cursor`
  // marks the end of the batch: store it together with your results, and pass it to the next call,
  // so that each match counts once whatever fails. Reconnects by itself. A batch counts as dealt
  // with when the next one is requested.
  async *deliver(session, cursor = null) {
    for (let failures = 0; ; ) {
      const stream = this.stub.Deliver(this.metadata);
      const subscription = new Subscription(stream, cursor);
      stream.write({
        start: {
          session,
          fields: { text: true, position: true, time: true, attributes: true },
          credit_batches: WINDOW.batches,
          credit_bytes: WINDOW.bytes,
          ...(cursor && { cursor }),
        },
      });
      try {
        for await (const message of stream) {
          failures = 0;
          const found = subscription.on(message);
          if (found) {
            yield found;
            cursor = found.cursor;
          }
          subscription.grant(cursor);
        }
        throw Object.assign(new Error('the service ended the stream'), {
          code: grpc.status.UNAVAILABLE,
        });
      } catch (error) {
        if (error.code !== grpc.status.UNAVAILABLE || failures === 10) throw error;
        await sleep(Math.min(2000, 50 * 2 ** failures++));
      } finally {
        stream.cancel();
      }
    }
  }
}

function packObject({ attributes, ...object }) {
  if (!attributes) return object;
  const values = Object.entries(attributes).map(([name, value]) => [name, packValue(name, value)]);
  return { ...object, attributes: { values: Object.fromEntries(values) } };
}

// The service has one type of number, in which an integer of 64 bits is exact.
function packValue(name, value) {
  if (typeof value === 'bigint') return { integer: String(value) };
  if (typeof value === 'number') {
    return Number.isSafeInteger(value) ? { integer: value } : { number: value };
  }
  if (typeof value === 'string') return { text: value };
  if (typeof value === 'boolean') return { boolean: value };
  if (value instanceof Date) return { time_ms: value.getTime() };
  throw new Error(`attributes.${name}: expected a number, text, boolean or Date`);
}

function readAttributes(attributes) {
  const values = Object.entries(attributes?.values ?? {});
  return Object.fromEntries(values.map(([name, value]) => [name, readValue(value)]));
}

// Integers that no JavaScript number holds stay texts.
function readValue({ value: kind, ...value }) {
  if (kind === 'time_ms') return new Date(Number(value.time_ms)).toISOString();
  if (kind !== 'integer') return value[kind];
  return Number.isSafeInteger(Number(value.integer)) ? Number(value.integer) : value.integer;
}

// A Deliver stream. The numbers of pairs are BigInt.
class Subscription {
  constructor(stream, cursor) {
    this.stream = stream;
    this.cursor = cursor;
    this.last = BigInt(cursor?.session_seq ?? 0);
    this.names = new Map(); // handle: id of the query
    this.batches = 0;
    this.bytes = 0;
  }

  // Returns what is new in a message, or null.
  on({ event, started, batch, size }) {
    if (event === 'started') {
      if (this.cursor && this.cursor.incarnation !== started.incarnation) this.last = 0n;
      this.cursor = { incarnation: started.incarnation, session: started.session };
      return null;
    }
    this.batches += 1;
    this.bytes += size;
    batch.new_handles.forEach((handle, i) => this.names.set(handle, batch.new_query_ids[i]));
    const first = BigInt(batch.gap ? batch.gap.from : batch.session_seq);
    const last = batch.gap ? BigInt(batch.gap.to) : first + BigInt(batch.pair_handles.length) - 1n;
    const seen = this.last;
    if (last <= seen) return null; // a repeat
    this.last = last;
    const cursor = { ...this.cursor, session_seq: String(last) };
    if (batch.gap) return { cursor, matches: [], gap: batch.gap };
    const matches = batch.pair_handles
      .map((handle, i) => ({ number: first + BigInt(i), handle, at: batch.pair_objects[i] }))
      .filter(({ number }) => number > seen)
      .map(({ number, handle, at }) => ({
        number: String(number),
        query: this.names.get(handle),
        object: batch.object_ids[at],
        partition: batch.partition,
        offset: batch.object_offsets[at],
        lon: batch.lon[at],
        lat: batch.lat[at],
        time: new Date(Number(batch.time_ms[at])).toISOString(),
        text: batch.text[at],
        attributes: readAttributes(batch.attributes[at]),
      }));
    return { cursor, matches, gap: null };
  }

  // Grants what was taken, once it is a quarter of the window, and acknowledges up to the cursor.
  grant(cursor) {
    const { batches, bytes } = this;
    if (4 * batches < WINDOW.batches && 4 * bytes < WINDOW.bytes) return;
    this.stream.write({ credit: { batches, bytes, ack: cursor?.session_seq ?? 0 } });
    this.batches = this.bytes = 0;
  }
}
