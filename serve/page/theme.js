// Light, dark, or as the system has it; remembered in this browser.

const KEPT = "maskahead-theme";

export function startTheme(choices) {
  const radios = [...choices.querySelectorAll("input")];
  const apply = (theme) => (document.documentElement.dataset.theme = theme);
  const kept = localStorage.getItem(KEPT);
  const first = radios.find((radio) => radio.value === kept) ?? radios[0];
  first.checked = true;
  apply(first.value);
  choices.addEventListener("change", (event) => {
    apply(event.target.value);
    localStorage.setItem(KEPT, event.target.value);
  });
}
