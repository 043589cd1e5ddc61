// The colours of the style sheet for canvases, which do not read it.

const NAMES = ["text", "soft", "line", "panel", "accent", "up", "down", "warn", "s1", "s2", "s3", "s4", "s5", "s6"];
let known = null;

/** Colours by name, as the present theme has them. */
export function colours() {
  if (known) return known;
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  known = Object.fromEntries(NAMES.map((name) => {
    probe.style.color = `var(--${name})`;
    return [name, getComputedStyle(probe).color];
  }));
  probe.remove();
  known.series = [known.s1, known.s2, known.s3, known.s4, known.s5, known.s6];
  return known;
}
addEventListener("trawl-theme", () => { known = null; });
