// The console works without this script. With it, live pages refresh themselves, values can be copied,
// "/" focuses the search, and j and k move through the rows of a table, or to the next page.
"use strict";
(() => {
  const live = () => document.querySelector("[data-live]");
  const busy = (part) =>
    document.hidden ||
    part.querySelector("details[open], input:focus, select:focus, textarea:focus, dialog[open]");

  async function refresh() {
    const part = live();
    if (!part || busy(part)) return;
    try {
      const reply = await fetch(location.href, { headers: { Accept: "text/html" } });
      const page = new DOMParser().parseFromString(await reply.text(), "text/html");
      const fresh = page.getElementById("live"); // a page that has ended is replaced once more, without data-live
      if (!reply.ok || reply.redirected || !fresh || busy(part)) throw new Error(reply.status);
      const focused = [...part.querySelectorAll("a, button, [tabindex]")].indexOf(document.activeElement);
      const scrolled = [...part.querySelectorAll(".table")].map((each) => each.scrollLeft);
      part.replaceWith(fresh);
      if (focused >= 0) fresh.querySelectorAll("a, button, [tabindex]")[focused]?.focus({ preventScroll: true });
      fresh.querySelectorAll(".table").forEach((each, n) => (each.scrollLeft = scrolled[n] ?? 0));
      document.body.classList.remove("stale");
    } catch {
      document.body.classList.add("stale");
    }
  }

  const every = () => Number(live()?.dataset.live) * 1000 || 5000;
  const tick = () => live() && setTimeout(() => refresh().finally(tick), every());
  tick();

  function walk(step) {
    const rows = [...document.querySelectorAll("tbody tr")].filter((row) => row.querySelector("a"));
    if (!rows.length) {
      document.querySelector(step > 0 ? "a[rel=next]" : "a[rel=prev]")?.click();
      return;
    }
    const at = rows.findIndex((row) => row.contains(document.activeElement));
    const next = at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + step, 0), rows.length - 1);
    rows[next].querySelector("a").focus();
  }

  async function copy(button) {
    const text = button.dataset.copy;
    try {
      await navigator.clipboard.writeText(text); // only where the page is from this host or over https
    } catch {
      const field = document.createElement("textarea");
      field.value = text;
      button.after(field);
      field.select();
      document.execCommand("copy");
      field.remove();
      button.focus();
    }
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 2000);
  }
  document.querySelectorAll("[data-copy]").forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", () => copy(button));
  });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.key === "/") {
      event.preventDefault();
      document.querySelector("main [data-search], [data-search]")?.focus();
    }
    if (event.key === "j") walk(1);
    if (event.key === "k") walk(-1);
  });
})();
