// No browser starts a worker for a page that was opened as a file. There the search runs in a
// hidden frame that takes the messages of a worker and answers them.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(address) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.onmessage?.(new MessageEvent("message", { data }));
      this.loaded = new Promise((done) => {
        const script = inside.document.createElement("script");
        script.src = address;
        script.onload = done;
        script.onerror = (event) => this.onerror?.(event);
        inside.document.body.append(script);
      });
    }

    postMessage(data) {
      const event = new MessageEvent("message", { data });
      this.loaded.then(() => this.frame.contentWindow?.dispatchEvent(event));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
