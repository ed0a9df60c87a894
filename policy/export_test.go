package policy

// Canonical is the text whose hash is the fingerprint.
var Canonical = canonical

// Quick is Canonical for the jobs that need little.
var Quick = quick
