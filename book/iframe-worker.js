// Browsers start no workers for a page that was opened from a folder: there the search runs in a hidden frame.
// The name of this file tells Material's offline plugin that it need not load such a thing from elsewhere.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.title = "search";
      document.documentElement.appendChild(frame);
      const inside = frame.contentWindow;
      // As from a real worker, messages come later, as copies made of the receiver's own kinds of objects.
      const later = (to, data, tell) => {
        const event = new MessageEvent("message", { data: to.structuredClone(data) });
        setTimeout(() => tell(event), 0);
      };
      inside.postMessage = (data) => later(window, data, (event) => this.answer(event));
      this.tell = (data) => later(inside, data, (event) => inside.dispatchEvent(event));
      const script = frame.contentDocument.createElement("script");
      script.onload = () => { const told = this.waiting; this.waiting = null; told.forEach(this.tell); };
      script.src = url;
      frame.contentDocument.head.appendChild(script);
    }

    answer(event) {
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data); else this.tell(data);
    }

    terminate() {}
  };
}
