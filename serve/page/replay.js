// The slider over finished forwards, shared by all columns: what each had after as many forwards.

const PACE = 350;

export class Replay {
  constructor(root, onShow) {
    this.root = root;
    this.onShow = onShow;
    [this.back, this.playing, this.on] = root.querySelectorAll("button");
    this.slider = root.querySelector("input");
    this.place = root.querySelector(".place");
    this.timer = null;
    this.follows = true;
    this.slider.addEventListener("input", () => this.#go(Number(this.slider.value)));
    this.back.addEventListener("click", () => this.#go(this.at - 1));
    this.on.addEventListener("click", () => this.#go(this.at + 1));
    this.playing.addEventListener("click", () => this.#toggle());
  }

  get at() {
    return Number(this.slider.value);
  }

  reset() {
    this.#stop();
    this.follows = true;
    this.root.hidden = true;
    this.slider.max = this.slider.value = 0;
  }

  // There are so many forwards now; the newest is shown unless somebody looks at another one.
  grow(count) {
    if (!count) return;
    this.root.hidden = false;
    this.slider.max = count;
    if (this.follows) this.slider.value = count;
    this.#show();
  }

  #go(k) {
    this.#stop();
    this.#set(k);
  }

  #set(k) {
    this.slider.value = k;
    this.follows = this.at === Number(this.slider.max);
    this.#show();
  }

  #show() {
    const told = `Forward ${this.at} of ${this.slider.max}`;
    this.place.textContent = told;
    this.slider.setAttribute("aria-valuetext", told);
    this.onShow(this.at);
  }

  #toggle() {
    if (this.timer) return this.#stop();
    if (this.at >= Number(this.slider.max)) this.#set(0);
    this.follows = false;
    this.playing.textContent = "Pause";
    this.timer = setInterval(() => {
      this.#set(this.at + 1);
      if (this.follows) this.#stop();
    }, PACE);
  }

  #stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.playing.textContent = "Play";
  }
}
