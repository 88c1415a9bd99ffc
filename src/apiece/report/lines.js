// A page of panels: their lines can be hidden and shown.
"use strict";
(async () => {
  document.documentElement.classList.add("script");
  await page.show_plots();
  for (const panel of document.querySelectorAll("[data-panel]")) {
    for (const box of panel.querySelectorAll("input[data-line]")) {
      box.addEventListener("change", () => {
        const source = page.named(`${panel.dataset.panel}-${box.dataset.line}`);
        for (const model of page.models) if (model.data_source === source || model.source === source) model.visible = box.checked;
      });
    }
  }
  page.ready = true;
})();
