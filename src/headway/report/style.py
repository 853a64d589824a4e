"""The page's CSS: light and dark, from 360 px on, nothing but system fonts."""

from __future__ import annotations

from typing import Final

CSS: Final = """
:root { color-scheme: light dark; --bg: #f5f6f7; --card: #fff; --ink: #1c2128; --soft: #58616d; --line: #dfe3e8; --faint: #eef0f3;
  --link: #1d5fa8; --warn: #8a5300; --warn-bg: #fff6e3; --warn-line: #e0a63a; --good: #12757d; --mark: #fff3bf; }
@media (prefers-color-scheme: dark) { :root { --bg: #12151a; --card: #1a1e25; --ink: #e7eaee; --soft: #a2acb8; --line: #323944;
  --faint: #242a33; --link: #86b9f2; --warn: #f3c36b; --warn-bg: #2b2314; --warn-line: #a1762a; --good: #6cc4bd; --mark: #453a12; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-padding-top: 3.5rem; }
body { margin: 0; background: var(--bg); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main, header { overflow-wrap: anywhere; }
main, .top > div { max-width: 1240px; margin: 0 auto; padding: 0 24px; }
h1 { font-size: 1.55rem; line-height: 1.25; margin: 0; letter-spacing: -.01em; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 0 0 .8rem; letter-spacing: -.005em; }
h3 { font-size: .95rem; margin: 1.2rem 0 .5rem; }
a { color: var(--link); text-underline-offset: .15em; }
code, .name { font: .86em/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
p { margin: .4rem 0; }
.soft, .note { color: var(--soft); font-size: .86rem; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; border-radius: 3px; }
.top { background: var(--card); border-bottom: 1px solid var(--line); padding: 22px 0 16px; }
.facts { display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; margin: .6rem 0 0; font-size: .9rem; }
.facts div { display: flex; gap: .4rem; min-width: 0; }
.facts dt { color: var(--soft); white-space: nowrap; }
.facts dd { margin: 0; overflow-wrap: anywhere; }
nav { position: sticky; top: 0; z-index: 5; background: var(--bg); border-bottom: 1px solid var(--line); }
nav div { max-width: 1240px; margin: 0 auto; padding: .55rem 24px; display: flex; gap: 1.3rem; overflow-x: auto; font-size: .9rem; }
nav a { text-decoration: none; white-space: nowrap; }
nav a:hover { text-decoration: underline; }
section, .tiles { margin: 20px 0; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 18px 20px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(134px, 1fr)); gap: 10px; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 11px 14px; min-width: 0; }
.tile span { display: block; color: var(--soft); font-size: .82rem; }
.tile b { display: block; font-size: 1.35rem; line-height: 1.3; font-weight: 600; letter-spacing: -.01em;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
.health { background: var(--warn-bg); border-color: var(--warn-line); }
.health h2 { color: var(--warn); margin-bottom: .3rem; font-size: .98rem; }
.health ul { margin: 0; padding-left: 1.1rem; }
.findings { list-style: none; margin: 0; padding: 0; }
.findings li { display: grid; grid-template-columns: 8.5rem 1fr; gap: .2rem 1.2rem; padding: .85rem 0; border-top: 1px solid var(--line); }
.findings li:first-child { border-top: 0; padding-top: .2rem; }
.won b { display: block; font-size: 1.2rem; line-height: 1.3; font-variant-numeric: tabular-nums; }
.won .meter { height: 6px; border-radius: 3px; background: var(--faint); margin: .35rem 0 .25rem; overflow: hidden; }
.won .meter i { display: block; height: 100%; border-radius: 3px; }
.what { min-width: 0; }
.what > b { display: block; overflow-wrap: anywhere; }
.what code { background: var(--faint); padding: .1em .4em; border-radius: 4px; }
details { margin-top: .35rem; }
summary { cursor: pointer; color: var(--soft); font-size: .86rem; }
details ul { margin: .3rem 0; padding-left: 1.1rem; font-size: .88rem; overflow-wrap: anywhere; }
.controls { display: flex; flex-wrap: wrap; gap: .6rem 1.2rem; align-items: center; margin-bottom: .8rem; }
.switch { display: inline-flex; border: 1px solid var(--line); border-radius: 7px; overflow: hidden; padding: 0; margin: 0; }
.switch label { padding: .28rem .8rem; cursor: pointer; font-size: .9rem; border-left: 1px solid var(--line); }
.switch label:first-of-type { border-left: 0; }
.switch input { position: absolute; opacity: 0; width: 1px; height: 1px; }
.switch label:has(:checked) { background: var(--ink); color: var(--card); }
.switch label:has(:focus-visible) { outline: 2px solid var(--link); outline-offset: -3px; }
select { font: inherit; font-size: .9rem; color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: 7px;
  padding: .25rem .5rem; min-width: 0; max-width: 100%; text-overflow: ellipsis; }
.pick { display: inline-flex; gap: .45rem; align-items: center; max-width: 100%; min-width: 0; white-space: nowrap; color: var(--soft);
  font-size: .9rem; }
.plot { position: relative; margin-left: 62px; height: 190px; }
.plot svg, .plot canvas { display: block; width: 100%; height: 100%; overflow: visible; }
.plot.tall { height: 300px; }
.plot .y { position: absolute; right: 100%; margin-right: 8px; transform: translateY(50%); font-size: 11.5px; line-height: 1;
  color: var(--soft); white-space: nowrap; font-variant-numeric: tabular-nums; }
.heat .y { max-width: 54px; overflow: hidden; text-overflow: ellipsis; line-height: 1.3; }
.x { position: relative; height: 1.5rem; margin-left: 62px; font-size: 11.5px; color: var(--soft); font-variant-numeric: tabular-nums; }
.x span { position: absolute; top: .3rem; transform: translateX(-50%); white-space: nowrap; }
.x .unit { right: 0; left: auto; transform: none; background: var(--card); padding-left: .5rem; }
.grid { stroke: var(--line); fill: none; vector-effect: non-scaling-stroke; }
.line { fill: none; stroke-width: 1.6; vector-effect: non-scaling-stroke; stroke-linejoin: round; stroke-linecap: round; }
.bad { fill: none; stroke: #c0392b; stroke-width: 1.4; stroke-dasharray: 3 3; vector-effect: non-scaling-stroke; }
.band { opacity: .22; stroke: none; }
.bar-gap { stroke: var(--card); stroke-width: .6; vector-effect: non-scaling-stroke; }
.worst { stroke: var(--ink); stroke-width: 1; fill: none; vector-effect: non-scaling-stroke; opacity: .65; }
.cut { fill: var(--ink); }
.cursor { position: absolute; top: 0; bottom: 0; background: var(--ink); opacity: .12; pointer-events: none; min-width: 1px; }
.dim { opacity: .18; }
.tip { position: absolute; z-index: 4; top: 8px; pointer-events: none; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; box-shadow: 0 6px 22px rgb(0 0 0 / .16); padding: .5rem .7rem; font-size: 12.5px; line-height: 1.45;
  width: max-content; max-width: min(400px, 100% + 40px); font-variant-numeric: tabular-nums; }
.tip b { display: block; margin-bottom: .15rem; }
.tip div { display: grid; grid-template-columns: 10px minmax(0, 1fr) auto; gap: .45rem; align-items: center; }
.tip div span:nth-child(2) { overflow-wrap: anywhere; }
.tip i, .keys i, td i.swatch { display: inline-block; width: 10px; height: 10px; border-radius: 2px; }
.curves { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 1.6rem 2rem; }
figure { margin: 0; min-width: 0; }
figcaption { display: flex; justify-content: space-between; gap: 1rem; margin-bottom: .5rem; font-size: .92rem; }
.last { color: var(--soft); font-variant-numeric: tabular-nums; }
.keys { display: flex; flex-wrap: wrap; gap: .1rem 1rem; font-size: .82rem; color: var(--soft); margin-bottom: .5rem; }
.keys span { display: inline-flex; align-items: center; gap: .4rem; }
.scroll { overflow-x: auto; margin-top: .9rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .9rem; }
th { text-align: left; font-weight: 500; color: var(--soft); font-size: .82rem; padding: .2rem .6rem; white-space: nowrap; }
td { padding: .2rem .6rem; border-top: 1px solid var(--faint); }
th:first-child, td:first-child { padding-left: 0; }
.num { text-align: right; white-space: nowrap; }
.part td:first-child { padding-left: 1.4rem; }
.head td { font-weight: 600; border-top-color: var(--line); }
.total td { font-weight: 600; border-top: 2px solid var(--line); }
td:first-child { min-width: 9rem; }
.label { display: flex; gap: .55rem; align-items: baseline; }
td i.swatch { flex: none; }
#communication .name, .kind { white-space: nowrap; }
td.bar { width: 26%; min-width: 90px; }
td.bar i { display: block; height: 11px; border-radius: 2px; min-width: 1px; }
tr:target td { background: var(--mark); }
tbody tr:hover td { background: var(--faint); }
tr:target:hover td { background: var(--mark); }
.heat canvas { image-rendering: pixelated; border-radius: 3px; }
.scale { display: flex; align-items: center; gap: .6rem; font-size: .82rem; color: var(--soft); }
.scale i { width: 130px; height: 10px; border-radius: 2px; }
.timeline { position: relative; touch-action: pan-y; cursor: grab; }
.timeline canvas { position: absolute; inset: 0; width: 100%; height: 100%; }
.timeline .lane { position: absolute; left: 0; font-size: 11.5px; line-height: 1.6; color: var(--soft); pointer-events: none; }
button { font: inherit; font-size: .9rem; color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: 7px;
  padding: .2rem .7rem; cursor: pointer; }
.samples { max-width: 100%; height: auto; display: block; border-radius: 6px; image-rendering: pixelated; }
footer { color: var(--soft); font-size: .84rem; padding: 4px 0 40px; }
td.fall { width: 34%; min-width: 110px; padding: .2rem 0; } td.fall svg { display: block; width: 100%; height: 14px; overflow: visible; }
.zero { stroke: var(--line); vector-effect: non-scaling-stroke; } .up { fill: #b0444f; } .down { fill: #12857d; } .level { fill: #8d949e; }
.faint { opacity: .4; } td.text { overflow-wrap: anywhere; } .plot circle { vector-effect: non-scaling-stroke; }
.ideal { fill: none; stroke: var(--soft); stroke-dasharray: 5 4; vector-effect: non-scaling-stroke; }
.dot { stroke-width: 7; stroke-linecap: round; fill: none; vector-effect: non-scaling-stroke; }
@media (max-width: 640px) {
  main, .top > div, nav div { padding-left: 14px; padding-right: 14px; }
  section { padding: 14px; }
  .tiles { grid-template-columns: 1fr 1fr; gap: 10px; }
  .tile { padding: 10px 12px; }
  .tile b { font-size: 1.25rem; }
  .findings li { grid-template-columns: 1fr; }
  .won { display: flex; align-items: baseline; gap: .6rem; flex-wrap: wrap; }
  .won .meter { flex: 1 1 60px; align-self: center; margin: 0; }
  .plot.tall { height: 240px; }
  .plot, .x { margin-left: 54px; }
  td.bar, th:empty { display: none; }
  td, th { padding-left: .35rem; padding-right: .35rem; }
  td:first-child { min-width: 10.5rem; }
  .part td:first-child { padding-left: .9rem; }
}
@media print { nav, .controls { display: none; } section { break-inside: avoid; } }
"""
