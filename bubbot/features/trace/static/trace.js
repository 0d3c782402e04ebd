// Scrubbing through the steps of a turn, and what comes while a page is open. Without it the links lead to the same pages.

const parse = (text) => new DOMParser().parseFromString(text, "text/html");

async function read(address) {
  const answer = await fetch(address, { credentials: "same-origin", redirect: "error" });
  return answer.ok ? parse(await answer.text()) : null;
}

function scrub(box) {
  let wanted = 0;

  async function show(step, base, focus) {
    const turn = (wanted += 1);
    const page = await read(`${base}/${step}?part=step`);
    if (page === null || turn !== wanted) return; // an older one came late
    box.replaceChildren(...page.body.childNodes);
    history.replaceState(null, "", `${base}/${step}`);
    if (focus) box.querySelector("input[type=range]")?.focus();
  }

  box.addEventListener("input", ({ target }) => {
    if (!target.matches("input[type=range]")) return;
    show(target.dataset.steps.split(" ")[target.value - 1], target.dataset.base, true);
  });
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.matches?.("input, textarea, select") ?? false;
    if (isTyping || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const link = box.querySelector(`a[data-key="${CSS.escape(event.key)}"]`);
    const range = box.querySelector("input[type=range]");
    if (!link || !range) return;
    event.preventDefault();
    show(new URL(link.href).pathname.split("/").pop(), range.dataset.base, false);
  });
}

// Keys of a part of the page while the focus is in it and nobody types: a link or a button is pressed, a choice made, a field entered.
function listenForKeys(box) {
  box.addEventListener("keydown", (event) => {
    const isTyping = event.target.matches("input:not([type=radio]), textarea, select");
    if (event.key === "Escape" && isTyping) return box.focus();
    if (isTyping || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const found = box.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
    if (!found) return;
    event.preventDefault();
    if (found.matches("input:not([type=radio])")) found.focus();
    else found.click();
  });
  box.focus({ preventScroll: true });
}

function follow(status) {
  const entries = document.getElementById("entries");
  const running = document.getElementById("running");
  let count = 0;

  // The turns come anew: the newest one may have ended. Who reads with the keyboard stays at the same one.
  async function readTurns() {
    const turns = document.getElementById("turns");
    const found = (await read(location.href).catch(() => null))?.getElementById("turns");
    if (!turns || !found || found.innerHTML === turns.innerHTML) return;
    const line = document.activeElement?.closest("#turns > li")?.id;
    turns.replaceChildren(...found.childNodes);
    if (line) document.querySelector(`#${CSS.escape(line)} a`)?.focus({ preventScroll: true });
  }

  async function look() {
    if (!document.hidden) {
      const page = await read(`${status.dataset.tail}?after=${status.dataset.head}`).catch(() => null);
      const found = page?.querySelector("[data-head]");
      if (found) {
        const isNew = status.dataset.head !== found.dataset.head;
        status.dataset.head = found.dataset.head;
        const added = found.querySelector("[data-part=entries]");
        count += added.querySelectorAll(".entry").length;
        if (entries) entries.append(...added.childNodes);
        else if (isNew) await readTurns();
        const part = found.querySelector("[data-part=running]");
        if (part.innerHTML !== running.innerHTML) running.replaceChildren(...part.childNodes);
        if (count) status.textContent = `${status.dataset.text} ${count}`;
      }
    }
    setTimeout(look, 1500);
  }

  setTimeout(look, 1500);
}

const step = document.getElementById("step");
if (step) scrub(step);
const keys = document.querySelector("[data-keys]");
if (keys) listenForKeys(keys);
const tail = document.getElementById("tail");
if (tail) follow(tail);
