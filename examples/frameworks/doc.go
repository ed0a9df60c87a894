// Package frameworks shows ojs beside libraries that programs use: an enqueue in a
// transaction of database/sql, sqlx, bun, ent and GORM, and the dashboard under net/http,
// chi, gin and echo. The code is in its tests.
package frameworks
