// The server's events. `told` gets each message, `lost` hears that the map's process is away, or
// why it refuses, `opened` that a stream begins, before which something may have been missed.

import { refusal } from "./api.js";

export function listen(told, lost, opened) {
  let source;
  const open = () => {
    source = new EventSource("/events");
    source.onopen = opened;
    source.onmessage = (event) => told(JSON.parse(event.data));
    source.onerror = async () => {
      if (source.readyState !== EventSource.CLOSED) {
        lost(""); // it tries again by itself
        return;
      }
      setTimeout(open, 2000);
      lost(await refusal("/events"));
    };
  };
  open();
}
