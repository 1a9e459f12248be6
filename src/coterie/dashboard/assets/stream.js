// What the server tells: the list of runs, and the run that is shown. Only changes come; they are kept together here.

const AGAIN_AFTER = 3000; // milliseconds, where the browser gave up

export class Stream {
  /** `heard` is called with what has changed: a set of the names of sections, `runs` among them. */
  constructor(heard, linked) {
    this.heard = heard;
    this.linked = linked;
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
    source.addEventListener("open", () => this.linked(true));
    source.addEventListener("error", () => {
      this.linked(false);
      if (source.readyState === EventSource.CLOSED) this.timer = setTimeout(() => this.open(id), AGAIN_AFTER);
    });
    source.addEventListener("runs", (event) => {
      const told = JSON.parse(event.data);
      if (told.anew) this.runs = {};
      merge(this.runs, told.set.runs ?? {});
      this.heard(new Set(["runs"]));
    });
    source.addEventListener("run", (event) => {
      const told = JSON.parse(event.data);
      if (told.anew) this.run = {};
      for (const [section, values] of Object.entries(told.set)) merge((this.run[section] ??= {}), values);
      this.missing = false;
      this.heard(new Set(told.anew ? [...Object.keys(told.set), "anew"] : Object.keys(told.set)));
    });
    source.addEventListener("missing", () => {
      if (this.missing) return;
      this.missing = true;
      this.heard(new Set(["missing"]));
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
