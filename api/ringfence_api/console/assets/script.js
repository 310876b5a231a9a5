// The console works without this script. With it, live pages refresh themselves, every page says what
// the service waits for, times can be local, values can be copied, "/" focuses the search, and j and k
// move through the rows of a table, or to the next page.
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
      convert(fresh);
      if (focused >= 0) fresh.querySelectorAll("a, button, [tabindex]")[focused]?.focus({ preventScroll: true });
      fresh.querySelectorAll(".table").forEach((each, n) => (each.scrollLeft = scrolled[n] ?? 0));
      document.body.classList.remove("stale");
    } catch {
      document.body.classList.add("stale");
    }
  }

  // Times are UTC in the page and in what forms send. The choice is kept in this browser.
  const CHOICE = "ringfence.times";
  let local = false;
  try {
    local = localStorage.getItem(CHOICE) === "local";
  } catch {} // storage may be forbidden
  const two = (number) => String(number).padStart(2, "0");
  const day = (time) => `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
  const minute = (time) => `${two(time.getHours())}:${two(time.getMinutes())}`;
  const second = (time) => `${minute(time)}:${two(time.getSeconds())}`;
  const here = Intl.DateTimeFormat().resolvedOptions().timeZone || "local";

  function inZone(element, text) {
    element.dataset.utc ??= element.textContent;
    element.textContent = local ? text() : element.dataset.utc;
  }

  function convert(part) {
    part.querySelectorAll("time[data-clock]").forEach((each) => {
      const time = new Date(each.dateTime);
      const date = day(time) === day(new Date()) ? "" : `${day(time)} `;
      inZone(each, () => date + second(time));
    });
    part.querySelectorAll("[data-minute]").forEach((each) => {
      inZone(each, () => minute(new Date(each.dataset.minute)));
    });
    part.querySelectorAll(".tooltip > title").forEach((each) => {
      const shown = (_, date, time) => second(new Date(`${date}T${time}Z`));
      inZone(each, () => each.dataset.utc.replace(/^(\S+) (\S+) UTC/, shown));
    });
    part.querySelectorAll("[data-zone]").forEach((each) => inZone(each, () => here));
  }

  const inUtc = (value) => new Date(value).toISOString().slice(0, 16);
  const inLocal = (value) => {
    const time = new Date(`${value}Z`);
    return `${day(time)}T${minute(time)}`;
  };
  const fields = () => [...document.querySelectorAll("input[type=datetime-local]")].filter((each) => each.value);

  function choose(isLocal) {
    if (isLocal !== local) fields().forEach((each) => (each.value = isLocal ? inLocal(each.value) : inUtc(each.value)));
    local = isLocal;
    convert(document);
    const button = document.querySelector("[data-times]");
    if (button) button.textContent = local ? "Show UTC" : "Show local times";
  }

  document.addEventListener("formdata", (event) => {
    if (!local) return;
    for (const field of event.target.querySelectorAll("input[type=datetime-local]")) {
      if (field.value) event.formData.set(field.name, inUtc(field.value));
    }
  });
  document.querySelectorAll("[data-times]").forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", () => {
      choose(!local);
      try {
        localStorage.setItem(CHOICE, local ? "local" : "utc");
      } catch {}
    });
  });
  if (local) {
    local = false;
    choose(true);
  }

  const bar = document.querySelector("[data-waiting]");
  async function look() {
    if (document.hidden) return;
    try {
      const status = await (await fetch("/v1/status")).json();
      if (status.waiting_for === undefined) return; // a problem, not the status
      bar.hidden = !status.waiting_for;
      if (status.waiting_for) bar.querySelector("span").textContent = status.waiting_for;
    } catch {} // the instance is away; a live page says so
  }
  if (bar) setInterval(look, 5000);

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
      document.querySelector(".find input")?.focus();
    }
    if (event.key === "j") walk(1);
    if (event.key === "k") walk(-1);
  });
})();
