// Receives the list of runs and the shown run from the server. The server sends only changes; they are merged here.

const RETRY_AFTER = 3000; // milliseconds, once the browser gave up

export class Stream {
  /** `onChange` is called with the set of changed sections (or `runs`), `onLink` with whether the connection is up. */
  constructor(onChange, onLink) {
    this.onChange = onChange;
    this.onLink = onLink;
    this.runs = {};
    this.run = {};
    this.missing = false;
  }

  open(id) {
    clearTimeout(this.timer);
    this.source?.close();
    this.id = id;
    this.run = {};
    this.missing = false;
    const source = new EventSource(`/api/stream?run=${encodeURIComponent(id)}`);
    source.addEventListener("open", () => this.onLink(true));
    source.addEventListener("error", () => {
      this.onLink(false);
      if (source.readyState === EventSource.CLOSED) this.timer = setTimeout(() => this.open(id), RETRY_AFTER);
    });
    source.addEventListener("runs", (event) => {
      const update = JSON.parse(event.data);
      if (update.anew) this.runs = {};
      merge(this.runs, update.set.runs ?? {});
      this.onChange(new Set(["runs"]));
    });
    source.addEventListener("run", (event) => {
      const update = JSON.parse(event.data);
      if (update.anew) this.run = {};
      for (const [section, values] of Object.entries(update.set)) merge((this.run[section] ??= {}), values);
      this.missing = false;
      this.onChange(new Set(update.anew ? [...Object.keys(update.set), "anew"] : Object.keys(update.set)));
    });
    source.addEventListener("missing", () => {
      if (this.missing) return;
      this.missing = true;
      this.onChange(new Set(["missing"]));
    });
    this.source = source;
  }
}

function merge(into, values) {
  for (const [key, value] of Object.entries(values)) {
    if (value === null) delete into[key];
    else into[key] = value;
  }
}
