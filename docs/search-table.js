// A field above a table: rows that do not hold all of its words are hidden.
for (const field of document.querySelectorAll("input.search-table")) {
  let table = field.parentElement;
  while (table && !table.querySelector?.("table tbody")) table = table.nextElementSibling;
  if (!table) continue;
  const rows = [...table.querySelectorAll("tbody tr")];
  const said = field.parentElement.querySelector("output");
  const search = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    said.textContent = words.length ? `${shown} of ${rows.length}` : "";
  };
  field.addEventListener("input", search);
  field.parentElement.hidden = false;
  search();
}
