// Artifacts sent by the peers: totals by artifact and by sender, and the newest records of the audit logs.

import { Rows, el, number, say, size } from "./format.js";

export class Leaving {
  constructor() {
    this.how = el("p", { class: "soft" });
    this.artifacts = new Table("By artifact", ["artifact", "times", "bytes"], (a) => [a[0], number(a[1]), size(a[2])]);
    this.senders = new Table("By sender", ["peer", "artifacts", "bytes"], (s) => [s[0], number(s[1]), size(s[2])]);
    this.one = new SentByOne();
    this.recent = new Table("Newest records", ["time", "from", "to", "artifact", "round", "bytes"], line, 4);
    this.recent.element.classList.add("tall");
    this.element = el("section", { class: "card", "aria-label": "Sent artifacts" },
      el("header", {}, el("h2", { text: "Sent artifacts" })), this.how,
      el("div", { class: "two" }, this.artifacts.element, this.senders.element), this.one.element, this.recent.element);
  }

  update(leaving) {
    say(this.how, leaving.audited
      ? "From the audit logs, which each peer writes before it sends anything. They are shown unverified; the command coterie audit verifies them."
      : "Counted from the run's events. A simulation keeps no audit log, because nothing leaves the process.");
    this.artifacts.show(leaving.artifacts);
    this.senders.show(leaving.senders);
    this.recent.show(leaving.recent.map((r, i) => [i, { from: r.from, ...r }]), ([, r]) => r);
  }
}

/** Artifacts sent by one peer, by artifact and by receiver. */
class SentByOne {
  constructor() {
    this.title = el("h3");
    this.to = new Table("By receiver", ["receiver", "bytes", "artifacts"], (t) => [t[0], size(t[1]), t.slice(2).join(", ")], 1, [2]);
    this.artifacts = new Table("By artifact", ["artifact", "times", "bytes"], (a) => [a[0], number(a[1]), size(a[2])]);
    this.element = el("div", { hidden: true }, this.title, el("div", { class: "two" }, this.artifacts.element, this.to.element));
  }

  update(name, left) {
    this.element.hidden = !left;
    if (!left) return;
    say(this.title, `Sent by ${name}`);
    this.artifacts.show(left.artifacts);
    this.to.show(left.to);
  }
}

const line = (r) => [String(r.time).slice(11, 19), r.from ?? "", r.to, r.name, number(r.round), size(r.bytes)];

class Table {
  constructor(title, heads, cells, names = 1, also = []) {
    const kind = (i) => (i < names || also.includes(i) ? "name" : "");
    this.body = el("tbody");
    this.rows = new Rows(this.body, () => {
      const made = heads.map((_, i) => el("td", { class: kind(i) }));
      return { row: el("tr", {}, ...made), update: (value) => cells(value).forEach((text, i) => say(made[i], text)) };
    });
    const head = el("tr", {}, ...heads.map((h, i) => el("th", { scope: "col", class: kind(i), text: h })));
    const table = el("table", {}, el("caption", { class: "caption soft", text: title }), el("thead", {}, head), this.body);
    this.element = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, table);
  }

  show(values, of = (value) => value) {
    this.element.hidden = !values.length;
    this.rows.show(values.map((value) => [String(value[0]), of(value)]));
  }
}
