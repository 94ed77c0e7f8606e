// Light, dark, or as the system has it; remembered in this browser, where it lets pages do so.

const KEPT = "maskahead-theme";

export function startTheme(choices) {
  const radios = [...choices.querySelectorAll("input")];
  const apply = (theme) => (document.documentElement.dataset.theme = theme);
  const first = radios.find((radio) => radio.value === kept()) ?? radios[0];
  first.checked = true;
  apply(first.value);
  choices.addEventListener("change", (event) => {
    apply(event.target.value);
    keep(event.target.value);
  });
}

// A browser that blocks site data raises an error at the mere name of its storage.
function kept() {
  try {
    return localStorage.getItem(KEPT);
  } catch {
    return null;
  }
}

function keep(theme) {
  try {
    localStorage.setItem(KEPT, theme);
  } catch {
    // It holds until the page is left.
  }
}
