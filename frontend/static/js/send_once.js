/** The one-time link: a person who opens it is signed in at once; a preview that runs no scripts is not. */

const form = /** @type {HTMLFormElement | null} */ (document.querySelector("[data-send-once]"));

function send() {
  if (document.visibilityState === "visible") form?.requestSubmit();
  else document.addEventListener("visibilitychange", send, { once: true });
}

send();
