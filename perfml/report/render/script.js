"use strict";
(() => {
  const make = (tag, attributes, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children);
    return element;
  };
  const format = (value, digits = 3) => {
    if (value === null) return "–";
    if (value === 0) return "0";
    const places = Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value))));
    return value.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places });
  };

  // Names of metrics and kernels break after an underscore, not in the middle of a word.
  document.querySelectorAll("tbody td, tbody th").forEach((cell) => {
    const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    const texts = [];
    while (walker.nextNode()) if (/\w_\w/.test(walker.currentNode.data)) texts.push(walker.currentNode);
    texts.forEach((text) => {
      const pieces = text.data.split(/(?<=\w_)(?=\w)/);
      if (pieces.every((piece) => piece.split(/\s/).every((word) => word.length <= 16))) {
        cell.classList.add("pieces");
      }
      text.replaceWith(...pieces.flatMap((piece, place) => (place ? [make("wbr"), piece] : [piece])));
    });
  });

  // Sorting: a header becomes a button; rows without a value stay at the end either way.
  const keyOf = (row, column) => {
    const cell = row.cells[column];
    if (!cell) return null;
    if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
    const text = cell.textContent.trim();
    return text === "–" || text === "" ? null : text;
  };
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number"
      ? a - b
      : String(a).localeCompare(String(b), "en", { numeric: true });
  const sortable = (table) => {
    const headers = [...table.tHead.rows[0].cells];
    headers.forEach((header, column) => {
      const button = make("button", { type: "button" }, header.textContent);
      header.replaceChildren(button);
      header.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const up = header.getAttribute("aria-sort") !== "ascending";
        headers.forEach((each) => each.setAttribute("aria-sort", "none"));
        header.setAttribute("aria-sort", up ? "ascending" : "descending");
        const body = table.tBodies[0];
        const rows = [...body.rows].map((row) => [keyOf(row, column), row]);
        rows.sort(([a], [b]) => {
          if (a === null || b === null) return (a === null) - (b === null);
          return up ? compare(a, b) : compare(b, a);
        });
        body.append(...rows.map(([, row]) => row));
      });
    });
  };
  document.querySelectorAll("table[data-sort]").forEach(sortable);

  // Filtering: every word typed must occur in the row.
  document.querySelectorAll("[data-filter]").forEach((grid) => {
    const table = grid.querySelector("table");
    const input = make("input", {
      type: "search",
      placeholder: "Filter rows",
      "aria-label": `Filter: ${table.caption.textContent}`,
    });
    const output = make("output", { "aria-live": "polite" });
    const rows = [...table.tBodies[0].rows];
    const apply = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row) => {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        shown += row.hidden ? 0 : 1;
      });
      output.textContent = words.length ? `${shown} of ${rows.length} rows` : `${rows.length} rows`;
    };
    input.addEventListener("input", apply);
    grid.prepend(make("div", { class: "filter" }, input, output));
    apply();
  });

  // Panels: one of several is shown; without this script, and in print, all of them are.
  document.querySelectorAll("[data-panels]").forEach((group) => {
    const panels = [...group.children];
    panels.forEach((panel) => panel.classList.add("switched"));
    if (panels.length < 2) return;
    const tabs = make("div", { class: "tabs", role: "group", "aria-label": group.dataset.panels });
    const show = (chosen) => panels.forEach((panel, place) => { panel.hidden = place !== chosen; });
    if (panels.length <= 4) {
      const buttons = panels.map((panel, place) => {
        const button = make("button", { type: "button" }, panel.dataset.label);
        button.addEventListener("click", () => {
          show(place);
          buttons.forEach((each, other) => each.setAttribute("aria-pressed", String(other === place)));
        });
        button.setAttribute("aria-pressed", String(place === 0));
        return button;
      });
      tabs.append(...buttons);
    } else {
      const select = make("select", { "aria-label": group.dataset.panels });
      select.append(...panels.map((panel, place) => make("option", { value: place }, panel.dataset.label)));
      select.addEventListener("change", () => show(Number(select.value)));
      tabs.append(select);
    }
    group.prepend(tabs);
    show(0);
  });

  // Kernels of a chosen layer. Names come from outside: they are only ever set as text.
  const source = document.getElementById("k-data");
  if (source) {
    const data = JSON.parse(source.textContent);
    const pick = (name) => document.getElementById(`k-${name}`);
    const out = pick("out");
    const fill = (select, names, keep) => {
      select.replaceChildren(...names.map((name, place) => make("option", { value: place }, name)));
      const found = names.indexOf(keep);
      select.value = String(found < 0 ? 0 : found);
    };
    const chosen = (select) => (select.selectedOptions[0] ? select.selectedOptions[0].textContent : "");
    const block = (backend, series, rows) => {
      const total = rows.reduce((sum, row) => sum + (row[2] || 0), 0);
      const stack = make("div", { class: "stack", "aria-hidden": "true" });
      const body = make("tbody");
      rows.forEach(([name, launches, time, share], place) => {
        const [short, full] = data.names[name];
        // shades of the backend's own colour: a colour means a backend everywhere
        const tint = `s${series}`;
        const shade = Math.max(0.16, 0.78 ** place);
        if (share) {
          const part = make("i", { class: tint });
          part.style.width = `${100 * share}%`;
          part.style.opacity = shade;
          stack.append(part);
        }
        const swatch = make("span", { class: `swatch ${tint}` });
        swatch.style.opacity = shade;
        const label = short === full
          ? make("span", { class: "name" }, swatch, make("span", {}, full))
          : make("details", { class: "fold" }, make("summary", {}, swatch, make("span", {}, short)), make("span", { class: "full" }, full));
        const value = (head, number, text) => make("td", { class: "n", "data-label": head, "data-v": number === null ? null : number }, text);
        body.append(make("tr", {},
          make("th", { scope: "row" }, label),
          value("share", share, share === null ? "–" : `${(100 * share).toFixed(1)} %`),
          value("time, µs", time, format(time)),
          value("launches", launches, Number.isInteger(launches) ? launches.toLocaleString("en-US") : format(launches))));
      });
      const table = make("table", { class: "cards" },
        make("caption", {}, `Kernels under ${backend}`),
        make("thead", {}, make("tr", {},
          make("th", { scope: "col" }, "kernel"),
          ...["share", "time, µs", "launches"].map((name) => make("th", { scope: "col", class: "n" }, name)))),
        body);
      sortable(table);
      const heading = make("h3", {},
        make("span", {}, make("span", { class: `swatch s${series}` }), backend),
        make("span", { class: "num" }, rows.length ? `${format(total)} µs` : "–"));
      return make("div", { class: "kernels" }, heading,
        ...(rows.length
          ? [stack, make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Kernels under ${backend}` }, table)]
          : [make("p", { class: "note" }, "This backend did not run this layer.")]));
    };
    const draw = () => {
      const place = Number(pick("condition").value);
      const condition = data.conditions[place];
      const layer = condition.layers[Number(pick("layer").value)];
      const wanted = Number(pick("backend").value) - 1;
      out.replaceChildren(...condition.backends
        .map((name, index) => [name, index])
        .filter(([, index]) => wanted < 0 || wanted === index)
        .map(([name, index]) => block(name, condition.series[index], (layer && layer.rows[index]) || [])));
    };
    const refill = () => {
      const condition = data.conditions[Number(pick("condition").value)];
      fill(pick("layer"), condition.layers.map((each) => each.name), chosen(pick("layer")));
      fill(pick("backend"), ["All backends", ...condition.backends], chosen(pick("backend")));
      draw();
    };
    fill(pick("condition"), data.conditions.map((each) => each.label), "");
    pick("condition").addEventListener("change", refill);
    ["layer", "backend"].forEach((name) => pick(name).addEventListener("change", draw));
    refill();
    document.getElementById("chooser").hidden = false;

    // From a layer (a mark of a chart, a row of the times) to its kernels.
    const names = new Set(data.conditions.flatMap((each) => each.layers.map((layer) => layer.name)));
    const open = (layer, label) => {
      const at = data.conditions.findIndex((each) =>
        each.label === label && each.layers.some((other) => other.name === layer));
      pick("condition").value = String(Math.max(at, 0));
      refill();
      pick("layer").value = String(data.conditions[Math.max(at, 0)].layers.findIndex((each) => each.name === layer));
      draw();
      document.getElementById("kernels").scrollIntoView();
    };
    const labelOf = (element) => { const panel = element.closest(".panel"); return panel ? panel.dataset.label : ""; };
    document.querySelectorAll("svg [data-layer]").forEach((mark) => {
      if (names.has(mark.dataset.layer)) mark.addEventListener("click", () => open(mark.dataset.layer, labelOf(mark)));
      else mark.removeAttribute("data-layer");
    });
    document.querySelectorAll("#times tbody th").forEach((cell) => {
      const layer = cell.textContent;
      if (!names.has(layer)) return;
      const button = make("button", { type: "button", class: "go", title: "its kernels" }, ...cell.childNodes);
      button.addEventListener("click", () => open(layer, labelOf(cell)));
      cell.append(button);
    });
  }

  // Tooltips of data points; without this script the browser shows the title of the mark.
  const tip = make("div", { class: "tip", role: "status", hidden: true });
  document.body.append(tip);
  document.querySelectorAll("svg [data-tip] > title").forEach((title) => title.remove());
  const point = (event) => {
    const mark = event.target.closest ? event.target.closest("svg [data-tip]") : null;
    tip.hidden = !mark;
    if (!mark) return;
    tip.textContent = mark.dataset.tip + (mark.dataset.layer ? " – click for its kernels" : "");
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${Math.max(4, event.clientY - tip.offsetHeight - 10)}px`;
  };
  ["pointermove", "pointerdown"].forEach((name) => document.addEventListener(name, point, { passive: true }));

  // A table that goes on beyond its frame says so, until its end is seen.
  document.querySelectorAll(".scroll").forEach((box) => {
    const sign = make("p", { class: "swipe", "aria-hidden": "true", hidden: true }, "more columns to the right →");
    box.after(sign);
    const look = () => { sign.hidden = box.scrollLeft + box.clientWidth >= box.scrollWidth - 4; };
    box.addEventListener("scroll", look, { passive: true });
    new ResizeObserver(look).observe(box); // it looks at once, when all signs are in their places
  });

  // Warnings that fold on screen are open on paper.
  window.addEventListener("beforeprint", () => {
    document.querySelectorAll("details.warn:not([open])").forEach((each) => {
      each.open = true;
      each.dataset.printed = "";
    });
  });
  window.addEventListener("afterprint", () => {
    document.querySelectorAll("details[data-printed]").forEach((each) => {
      each.open = false;
      delete each.dataset.printed;
    });
  });
})();
