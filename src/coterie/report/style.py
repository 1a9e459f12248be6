"""How a report looks, in light and in dark."""

# Blue is always test or precision, orange always validation or recall, green mass; c0 to c7 are clusters.
STYLE = """
:root { color-scheme: light dark; --page: #f9f9f7; --card: #fcfcfb; --ink: #0b0b0b; --soft: #52514e;
  --grid: #e1e0d9; --axis: #8a8984; --blue: #2a78d6; --orange: #d9541f; --green: #008300;
  --c0: #2a78d6; --c1: #1baf7a; --c2: #eda100; --c3: #008300; --c4: #4a3aa7; --c5: #e34948; --c6: #e87ba4;
  --c7: #eb6834; }
@media (prefers-color-scheme: dark) { :root {
  --page: #0d0d0d; --card: #1a1a19; --ink: #ffffff; --soft: #c3c2b7;
  --grid: #33332f; --axis: #8a8984; --blue: #4a94ec; --orange: #e8703f; --green: #2f9e2f;
  --c0: #3987e5; --c1: #199e70; --c2: #c98500; --c3: #2f9e2f; --c4: #9085e9; --c5: #e66767; --c6: #d55181;
  --c7: #d95926; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 72rem; background: var(--page); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .5rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 0 0 .25rem; }
p { margin: .25rem 0; }
.soft, figcaption, small { color: var(--soft); font-size: .875rem; }
dl, .figures { display: grid; gap: .75rem; margin: 1rem 0; }
.figures { align-items: start; }
dl { grid-template-columns: repeat(auto-fit, minmax(min(9rem, 100%), 1fr)); }
.figures { grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); }
dl > div, section, details { background: var(--card); border: 1px solid var(--grid); border-radius: .5rem;
  padding: .75rem 1rem; min-width: 0; overflow-wrap: anywhere; }
dt { color: var(--soft); font-size: .875rem; }
dd { margin: 0; }
dd b { display: block; font-size: 1.5rem; font-weight: 600; }
figure { margin: 0; }
svg { display: block; width: 100%; height: auto; max-width: 40rem; margin: .5rem auto; }
svg text { fill: var(--soft); font-size: 12px; }
@media (max-width: 30rem) { svg text { font-size: 14px; } }
.grid { stroke: var(--grid); fill: none; }
.axis { stroke: var(--axis); fill: none; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.line.validation, .line.recall { stroke-dasharray: 5 4; }
.line.mass { stroke-dasharray: 1 5; }
.test, .precision { --colour: var(--blue); }
.validation, .recall { --colour: var(--orange); }
.mass { --colour: var(--green); }
.line { stroke: var(--colour); }
.dot, .band { fill: var(--colour); }
.dot { stroke: var(--card); stroke-width: 1.5; }
.outer { opacity: .16; }
.inner { opacity: .26; }
.field { fill: none; stroke: var(--axis); }
.cells path { stroke: var(--blue); stroke-width: 1; shape-rendering: crispEdges; fill: none; }
.part { stroke: var(--axis); stroke-width: .75; fill: none; }
.c0 { fill: var(--c0); } .c1 { fill: var(--c1); } .c2 { fill: var(--c2); } .c3 { fill: var(--c3); }
.c4 { fill: var(--c4); } .c5 { fill: var(--c5); } .c6 { fill: var(--c6); } .c7 { fill: var(--c7); }
.key { display: inline-block; width: 1.5rem; margin: 0 .25rem 0 .75rem; vertical-align: middle;
  border-top: 3px solid var(--colour); }
.key.validation, .key.recall { border-top-style: dashed; }
.key.mass { border-top-style: dotted; }
details { margin: .75rem 0; }
summary { cursor: pointer; font-weight: 600; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums;
  margin-top: .5rem; }
caption { text-align: left; color: var(--soft); padding-bottom: .25rem; }
th, td { padding: .2rem .75rem; text-align: right; border-bottom: 1px solid var(--grid);
  white-space: nowrap; }
th.name, td.name { text-align: left; }
thead th { color: var(--soft); font-weight: 600; }
"""
