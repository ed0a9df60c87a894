package policy

// Canonical is the text whose hash is the fingerprint.
var Canonical = canonical
