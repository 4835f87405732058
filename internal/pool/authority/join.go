package authority

// JoinProtocol is the TLS application protocol of the joining exchange.
const JoinProtocol = "outboard-join/1"
