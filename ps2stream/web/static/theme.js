// Light or dark: as the system says, until the button says otherwise.

const KEPT = "ps2stream-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

export function dark() {
  return document.documentElement.dataset.theme === "dark";
}

export function watchTheme(button, changed) {
  const apply = () => {
    let chosen = null;
    try { chosen = localStorage.getItem(KEPT); } catch { /* storage is forbidden */ }
    document.documentElement.dataset.theme = chosen ?? (system.matches ? "dark" : "light");
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Use the ${dark() ? "light" : "dark"} theme`);
    changed();
  };
  button.addEventListener("click", () => {
    try { localStorage.setItem(KEPT, dark() ? "light" : "dark"); } catch { return; }
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}
