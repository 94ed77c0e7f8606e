// The form: from what the endpoint serves to the requests that it is asked.

import { element } from "./dom.js";

const EXAMPLES = {
  "a word problem":
    "Mia has 32 coins. She gives away 7 coins a day for 2 days. Then her brother takes a third of " +
    "the coins. Next, she buys as many coins as she had at the start. What is the number of coins " +
    "that Mia has now?",
  "a function":
    "Given a text called phrase, write a function read_chain to swap upper and lower case and then " +
    'remove the spaces. Your code should pass this test:\nassert read_chain("stone5 dog8") == ' +
    '"STONE5DOG8"',
};
const ALONE = "";

export class Form {
  constructor(root) {
    this.root = root;
    this.fields = root.elements;
    this.model = null;
    const examples = root.querySelector("#examples");
    for (const [name, prompt] of Object.entries(EXAMPLES)) {
      const button = element("button", { type: "button", class: "link" }, name);
      button.addEventListener("click", () => (this.fields.prompt.value = prompt));
      examples.append(" ", button);
    }
    this.fields.prompt.value = Object.values(EXAMPLES)[0];
    for (const name of ["method", "beside"])
      this.fields[name].addEventListener("change", () => this.#showOptions());
  }

  get key() {
    return this.fields.key.value.trim();
  }

  get inTurn() {
    return this.fields.in_turn.checked;
  }

  // Offers what the endpoint serves; its own settings are the first choice.
  serve(model) {
    const { methods, decode } = model.maskahead;
    this.model = model;
    const options = (names) => names.map((name) => element("option", { value: name }, name));
    this.fields.method.replaceChildren(...options(Object.keys(methods)));
    this.fields.method.value = decode.method;
    const alone = element("option", { value: ALONE }, "nothing");
    this.fields.beside.replaceChildren(alone, ...options(Object.keys(methods)));
    this.fields.beside.value = decode.method === "standard" ? ALONE : "standard";
    for (const name of ["budget", "cap", "tau", "temperature"])
      this.fields[name].value = Number.isFinite(decode[name]) ? decode[name] : "";
    this.fields.budget.placeholder = decode.budget;
    this.fields.max_tokens.value = decode.max_new_tokens;
    this.#showOptions();
  }

  // The request of every column, by the column's name.
  requests() {
    const { method, beside } = this.fields;
    const methods = [method.value, beside.value].filter((name) => name !== ALONE);
    return methods.map((name) => ({ name, request: this.#request(name) }));
  }

  #request(method) {
    const own = { method, events: true };
    for (const name of ["budget", "cap", "tau"]) {
      const value = this.#number(name);
      if (value !== null && this.model.maskahead.methods[method].includes(name)) own[name] = value;
    }
    const request = { model: this.model.id, maskahead: own };
    for (const name of ["temperature", "seed", "max_tokens"]) {
      const value = this.#number(name);
      if (value !== null) request[name] = value;
    }
    const prompt = this.fields.prompt.value;
    if (this.fields.form.value === "chat") request.messages = [{ role: "user", content: prompt }];
    else request.prompt = prompt;
    return request;
  }

  #number(name) {
    const { value } = this.fields[name];
    return value === "" ? null : Number(value);
  }

  // Options that none of the chosen methods knows are out of the way, and not checked either: what
  // is wrong in a hidden field could be neither seen nor mended.
  #showOptions() {
    const { methods } = this.model.maskahead;
    const chosen = [this.fields.method.value, this.fields.beside.value];
    const known = new Set(chosen.flatMap((name) => methods[name] ?? []));
    for (const label of this.root.querySelectorAll("[data-option]")) {
      label.hidden = !known.has(label.dataset.option);
      label.control.disabled = label.hidden;
    }
  }
}
