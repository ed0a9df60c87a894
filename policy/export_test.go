package policy

// Canonical is the text whose hash is the fingerprint.
var Canonical = canonical

// Builtin are the strategies of the presets.
var Builtin = builtin
