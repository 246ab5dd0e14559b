"use strict";
// First of all, so that a dark page never flashes white.
(() => {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  const apply = () => {
    document.documentElement.dataset.theme = chosen ?? (system.matches ? "dark" : "light");
    document.dispatchEvent(new Event("themed"));
  };
  system.addEventListener("change", apply);
  document.addEventListener("switch-theme", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    apply();
  });
  apply();
})();
