// A lock of several names: all in one instant or none, by one hold.
"use strict";
const { Lock } = require("./lock.cjs");

class MultiLock extends Lock {
  get names() {
    return this.name;
  }
  async passTo() {
    throw new TypeError("only a lock of one name is passed on");
  }
}

module.exports = { MultiLock };
