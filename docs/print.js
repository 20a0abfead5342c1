// On paper nothing can be opened: what is folded is printed open.
addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll(".md-content details:not([open])")) {
    folded.open = true;
    folded.dataset.closed = "";
  }
});
addEventListener("afterprint", () => {
  for (const folded of document.querySelectorAll("details[data-closed]")) {
    folded.open = false;
    delete folded.dataset.closed;
  }
});
