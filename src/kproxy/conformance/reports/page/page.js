"use strict";
/* Draws the results that stand in this file.  Every text is put in as text; nothing is fetched.
   Routes: #/ the matrix (filters behind a "?"), #/case/ID all runs of a case, #/case/ID/N its cell in run N,
   #/clause/ID a clause. */
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const main = document.getElementById("main");
  const text = (number) => data.texts[number];
  const SYMBOLS = { passed: "✓", failed: "✗", deviation: "≠", unsupported: "–", "not-runnable": "○", broken: "!" };
  const WORST = ["failed", "broken", "deviation", "passed", "unsupported", "not-runnable"];
  const cases = data.cases.map((entry, row) => ({ ...entry, row, group: entry.id.split(".")[0] }));
  const byId = new Map(cases.map((entry) => [entry.id, entry]));
  const differing = new Set(data.differing);

  const present = (children) => children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== "" && child !== false);
  function h(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...present(children));
    return element;
  }
  const show = (...children) => main.replaceChildren(...present(children));
  const link = (href, ...children) => h("a", { href }, ...children);
  const to = (...parts) => "#/" + parts.map(encodeURIComponent).join("/");
  const cellOf = (entry, column) => data.cells[entry.row][column];
  const kind = (cell) => data.results[cell.r];
  const again = (entry, column) => data.columns[column].reproduce && `${data.columns[column].reproduce} --case '${entry.id}'`;
  const seconds = (number) => `${number.toFixed(number < 10 ? 2 : 1)} s`;

  function verdict(word, options = {}) {
    const inside = [h("span", { "aria-hidden": "true" }, SYMBOLS[word]), h("span", { class: "word" }, ` ${options.say || word}`)];
    return options.href
      ? h("a", { class: `verdict ${word}`, href: options.href, title: options.title }, inside)
      : h("span", { class: `verdict ${word}`, title: options.title }, inside);
  }

  /* ---------------------------------------------------------------- the matrix */

  function counts(column) {
    const found = Object.fromEntries(data.results.map((word) => [word, 0]));
    for (const entry of cases) if (cellOf(entry, column)) found[kind(cellOf(entry, column))] += 1;
    return found;
  }

  function runs() {
    return h("ul", { class: "runs" }, data.columns.map((column, number) => {
      const found = counts(number);
      const words = data.results.filter((word) => found[word]);
      const bar = h("div", { class: "bar", "aria-hidden": "true" });
      for (const word of words) {
        const part = h("i");
        part.style.flexGrow = found[word];
        part.style.background = `var(--${["unsupported", "not-runnable"].includes(word) ? "quiet" : word})`;
        bar.append(part);
      }
      return h("li", {}, h("b", {}, column.name), bar, words.map((word) => `${found[word]} ${word}`).join(", "),
        h("div", { class: "dim" }, `${seconds(column.seconds)}${column.on ? ` on ${column.on}` : ""}`),
        column.convergence.length > 0 && h("details", { class: "dim" }, h("summary", {}, `Changes in effect after: ${column.convergence[0]}`), h("ul", {}, column.convergence.slice(1).map((line) => h("li", {}, line)))),
      column.unused.length > 0 && h("details", { open: true }, h("summary", {}, `${column.unused.length} known deviations that did not occur: take them out of the subject's file`), h("ul", {}, column.unused.map((line) => h("li", {}, line)))));
    }));
  }

  const FILTERS = { rows: "cases", group: "", result: "", feature: "", text: "", differs: "" };
  let filters = { ...FILTERS };

  function matches(entry) {
    const met = data.columns.map((_, column) => cellOf(entry, column)).filter(Boolean);
    const words = filters.text.toLowerCase().split(/\s+/).filter(Boolean);
    const all = [entry.id, entry.about, ...entry.clauses, ...entry.regressions, ...met.map((cell) => (cell.why === undefined ? "" : text(cell.why)))].join(" ").toLowerCase();
    return (!filters.group || entry.group === filters.group)
      && (!filters.feature || entry.features.includes(filters.feature))
      && (!filters.result || met.some((cell) => kind(cell) === filters.result))
      && (!filters.differs || differing.has(entry.id))
      && words.every((word) => all.includes(word));
  }

  function choice(name, label, values) {
    const select = h("select", { onchange: (event) => change(name, event.target.value) },
      values.map(([value, say]) => h("option", { value, selected: filters[name] === value }, say)));
    return h("label", {}, label, select);
  }

  function form() {
    const one = (values, say) => [["", say], ...[...new Set(values)].map((value) => [value, value])];
    return h("form", { onsubmit: (event) => event.preventDefault(), role: "search" },
      choice("rows", "Rows", [["cases", "cases"], ["clauses", "clauses"]]),
      choice("group", "Group", one(cases.map((entry) => entry.group), "all groups")),
      choice("result", "Result", one(data.results.filter((word) => cases.some((entry) => data.cells[entry.row].some((cell) => cell && kind(cell) === word))), "any result")),
      choice("feature", "Feature", one(cases.flatMap((entry) => entry.features).sort(), "any feature")),
      h("label", {}, "Text", h("input", { type: "search", value: filters.text, placeholder: "case, clause, reason", oninput: (event) => change("text", event.target.value) })),
      data.columns.length > 1 && h("label", { class: "check" },
        h("input", { type: "checkbox", checked: !!filters.differs, onchange: (event) => change("differs", event.target.checked ? "1" : "") }), "only differences"),
      h("button", { type: "button", onclick: () => { filters = { ...FILTERS, rows: filters.rows }; remember(); overview(); } }, "Clear"));
  }

  function change(name, value) {
    filters[name] = value;
    remember();
    fill();
  }

  function remember() {
    const query = new URLSearchParams(Object.entries(filters).filter(([name, value]) => value !== FILTERS[name]));
    history.replaceState(null, "", query.size ? `#/?${query}` : "#/");
  }

  function overview() {
    const say = data.columns.length === 1 ? data.columns[0].name : `${data.columns.length} runs`;
    document.title = `kproxy conformance: ${say}`;
    show(h("h1", {}, `kproxy conformance: ${say}`),
      h("details", { open: data.columns.length < 3 || matchMedia("(min-width: 641px)").matches }, h("summary", {}, "Runs"), runs()), form(),
      h("p", { class: "dim", id: "count", role: "status" }),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Results" }, h("table", { class: "matrix", id: "matrix" })));
    fill();
  }

  function fill() {
    const chosen = cases.filter(matches);
    const rows = filters.rows === "clauses" ? clauseRows(chosen) : caseRows(chosen);
    document.getElementById("count").textContent =
      `${chosen.length} of ${cases.length} cases${data.columns.length > 1 ? `, ${chosen.filter((entry) => differing.has(entry.id)).length} of them differ` : ""}`;
    document.getElementById("matrix").replaceChildren(
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, filters.rows === "clauses" ? "Clause" : "Case"), data.columns.map((column) => h("th", { scope: "col" }, column.name)))),
      h("tbody", {}, rows.length ? rows : h("tr", {}, h("td", { colspan: data.columns.length + 1 }, "No case fits these filters."))));
  }

  function grouped(entries, group, row, heading) {
    let last = null;
    return entries.flatMap((entry) => {
      const first = group(entry) !== last;
      last = group(entry);
      return first ? [heading(last), row(entry)] : [row(entry)];
    });
  }

  function caseRows(chosen) {
    const heading = (group) => h("tr", { class: "group" }, h("th", { scope: "rowgroup" }, group), data.columns.map((_, column) => {
      const met = chosen.filter((entry) => entry.group === group).map((entry) => cellOf(entry, column)).filter(Boolean);
      return h("td", {}, met.length ? `${met.filter((cell) => kind(cell) === "passed").length}/${met.length}` : "");
    }));
    const row = (entry) => h("tr", {},
      h("th", { scope: "row" }, link(to("case", entry.id), entry.id.slice(entry.group.length + 1)), h("span", { class: "about" }, entry.about)),
      data.columns.map((_, column) => {
        const cell = cellOf(entry, column);
        return h("td", {}, cell ? verdict(kind(cell), { href: to("case", entry.id, column), title: cell.why === undefined ? null : text(cell.why) }) : "");
      }));
    return grouped(chosen, (entry) => entry.group, row, heading);
  }

  function clauseRows(chosen) {
    const citing = new Map();
    for (const entry of chosen) for (const id of entry.clauses) citing.set(id, [...(citing.get(id) || []), entry]);
    const ids = [...citing.keys()].sort();
    const heading = (area) => h("tr", { class: "group" }, h("th", { scope: "rowgroup" }, area), data.columns.map(() => h("td")));
    const row = (id) => h("tr", {},
      h("th", { scope: "row" }, link(to("clause", id), id), h("span", { class: "about" }, data.clauses[id] ? `${data.clauses[id].level}: ${data.clauses[id].text}` : "")),
      data.columns.map((_, column) => h("td", {}, standing(id, citing.get(id), column))));
    return grouped(ids, (id) => id.split(".")[0], row, heading);
  }

  /* A clause fares as the worst of its cases; a failed case counts only for the clauses that its findings cite. */
  function standing(id, entries, column) {
    const met = entries.map((entry) => cellOf(entry, column)).filter(Boolean);
    if (!met.length) return "";
    const words = met.map((cell) => (cell.f && !cell.f.some((finding) => finding[5].includes(id)) ? "passed" : kind(cell)));
    const worst = WORST.find((word) => words.includes(word));
    return verdict(worst, { href: to("clause", id), say: `${words.filter((word) => word === "passed").length}/${words.length}`, title: `${worst}; passed by ${words.filter((word) => word === "passed").length} of ${words.length} cases` });
  }

  /* ---------------------------------------------------------------- pages */

  const home = () => { const query = new URLSearchParams(Object.entries(filters).filter(([name, value]) => value !== FILTERS[name])); return query.size ? `#/?${query}` : "#/"; };

  function copied(command) {
    const button = h("button", { type: "button", onclick: () => navigator.clipboard && navigator.clipboard.writeText(command).then(() => { button.textContent = "Copied"; }) }, "Copy");
    return h("div", {}, h("pre", { class: "wrap" }, command), navigator.clipboard ? button : "");
  }

  function clauseList(ids) {
    return ids.map((id) => {
      const clause = data.clauses[id];
      if (!clause) return h("div", {}, h("h3", {}, id), h("p", { class: "dim" }, "Not in the specification that this page was made with."));
      return h("div", {}, h("h3", {}, link(to("clause", id), id)), h("p", {}, h("b", {}, clause.level), " ", clause.text),
        h("ul", { class: "plain" }, clause.sources.map((url) => h("li", {}, h("a", { href: url, rel: "noreferrer" }, url)), ), h("li", { class: "dim" }, clause.by)));
    });
  }

  function casePage(entry) {
    show(h("nav", {}, link(home(), "← All results")), h("h1", {}, entry.id), h("p", {}, entry.about),
      h("h2", {}, "Runs"), h("ul", { class: "plain" }, data.columns.map((column, number) => {
        const cell = cellOf(entry, number);
        return h("li", {}, cell ? [verdict(kind(cell), { href: to("case", entry.id, number) }), ` ${column.name}`, cell.why === undefined ? "" : h("div", { class: "dim" }, text(cell.why))] : `${column.name}: not run`);
      })),
      h("h2", {}, "Steps"), steps(entry, null), facts(entry), h("h2", {}, "Clauses"), clauseList(entry.clauses));
  }

  function facts(entry) {
    const rows = { configuration: entry.profile, families: entry.families.join(", "), features: entry.features.join(", "), "reported bugs": entry.regressions.join(", ") };
    return h("dl", { class: "facts" }, Object.entries(rows).filter(([, value]) => value).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
  }

  /* Step: [what, lawful, objects].  Seen (o): [last digit of the family, step, what was seen, seconds since the lab's start].
     Finding (f): [family, step, what, lawful, seen, clauses, the deviation that it is known as or nothing]. */
  function steps(entry, cell) {
    return h("ol", { class: "steps" }, entry.steps.map(([what, lawful, objects], index) => {
      const seen = ((cell && cell.o) || []).filter((one) => one[1] === index + 1);
      const found = ((cell && cell.f) || []).filter((one) => one[1] === index + 1);
      const judged = text(lawful) !== "";
      return h("li", { class: found.length ? "bad" : judged && seen.length ? "judged" : null },
        h("b", {}, `${index + 1}. `), text(what),
        objects === undefined ? "" : h("details", { open: entry.steps.length < 4 }, h("summary", {}, "Objects"), h("pre", {}, text(objects))),
        h("dl", {}, judged ? [h("dt", {}, "lawful"), h("dd", {}, text(lawful))] : "",
          seen.filter((one) => !found.some((other) => other[0] === `IPv${one[0]}` && other[4] === one[2])).map((one) => [h("dt", {}, `seen, IPv${one[0]}`), h("dd", {}, text(one[2]), h("span", { class: "dim" }, ` at ${one[3].toFixed(2)} s`))]),
          found.map((one) => [h("dt", {}, `unlawful, ${one[0]}`), h("dd", { class: "bad" }, text(one[4]), text(lawful).startsWith(text(one[3])) ? "" : h("span", { class: "dim" }, ` where lawful is ${text(one[3])}`), " (", one[5].map((id, at) => [at ? ", " : "", link(to("clause", id), id)]), ")", text(one[6]) ? h("span", { class: "dim" }, `; known: ${text(one[6])}`) : "")])));
    }));
  }

  function cellPage(entry, number) {
    const cell = cellOf(entry, number);
    const column = data.columns[number];
    if (!cell) return casePage(entry);
    const word = kind(cell);
    const next = (by) => { const at = entry.row + by; return cases[at] && data.cells[at][number] ? link(to("case", cases[at].id, number), by < 0 ? "← Previous case" : "Next case →") : ""; };
    const others = data.columns.map((other, at) => (at !== number && cellOf(entry, at) ? h("li", {}, verdict(kind(cellOf(entry, at)), { href: to("case", entry.id, at) }), ` ${other.name}`) : null)).filter(Boolean);
    show(
      h("nav", {}, link(home(), "← All results"), next(-1), next(1)),
      h("h1", {}, entry.id), h("p", {}, verdict(word), ` ${column.name}, ${seconds(cell.s)}`), h("p", {}, entry.about),
      cell.why === undefined ? "" : h("pre", { class: "wrap" }, text(cell.why)),
      again(entry, number) ? [h("h2", {}, "Run it again"), copied(again(entry, number))] : "",
      cell.e ? evidence(cell.e) : "",
      h("h2", {}, "What was done, and seen"), steps(entry, cell), facts(entry),
      others.length ? [h("h2", {}, "Other runs of this case"), h("ul", { class: "plain" }, others)] : "",
      h("h2", {}, "Clauses"), clauseList(entry.clauses),
      h("h2", {}, "Environment"), h("dl", { class: "facts" }, Object.entries(column.facts).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
  }

  function evidence(kept) {
    const files = kept.files.map((name) => h("li", {}, kept.at ? link(`${kept.at}/${name}`.split("/").map(encodeURIComponent).join("/"), name) : h("code", {}, name)));
    return [h("h2", {}, "Evidence"), h("p", {}, "In ", h("code", {}, kept.folder), kept.at ? "" : h("span", { class: "dim" }, ", where the run was made")),
      h("details", { open: files.length < 12 }, h("summary", {}, `${files.length} files`), h("ul", { class: "plain" }, files)),
      kept.shown.map(([name, number]) => h("details", {}, h("summary", {}, `Rules that counted packets when the probe was sent again: ${name}`), h("pre", {}, text(number))))];
  }

  function clausePage(id) {
    const citing = cases.filter((entry) => entry.clauses.includes(id));
    show(h("nav", {}, link(home(), "← All results")), h("h1", {}, id), clauseList([id]),
      h("h2", {}, "Cases"), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Cases" }, h("table", { class: "matrix" },
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Case"), data.columns.map((column) => h("th", { scope: "col" }, column.name)))),
        h("tbody", {}, caseRows(citing)))));
  }

  /* ---------------------------------------------------------------- routes */

  function route() {
    const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
    const [page, id, column] = path.split("/").map(decodeURIComponent);
    window.scrollTo(0, 0);
    if (page === "case" && byId.has(id)) {
      document.title = `${id}: kproxy conformance`;
      if (column === undefined) casePage(byId.get(id)); else cellPage(byId.get(id), Number(column));
    } else if (page === "clause") {
      document.title = `${id}: kproxy conformance`;
      clausePage(id);
    } else {
      if (location.hash !== "#main") filters = { ...FILTERS, ...Object.fromEntries([...new URLSearchParams(query || "")].filter(([name]) => name in FILTERS)) };
      overview();
      return;
    }
    main.focus({ preventScroll: true });
  }

  window.addEventListener("hashchange", () => { if (location.hash !== "#main") route(); });
  route();
})();
