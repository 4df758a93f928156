// The server's events. `told` gets each message, `lost` hears that the map's process is away.

export function listen(told, lost) {
  let source;
  const open = () => {
    source = new EventSource("/events");
    source.onmessage = (event) => told(JSON.parse(event.data));
    source.onerror = () => {
      lost();
      if (source.readyState === EventSource.CLOSED) setTimeout(open, 2000); // it was refused
    };
  };
  open();
}
