// Package alerttest runs the alerts and queries of docs/alerts.yml and
// docs/grafana.json in Prometheus's own engine. It is a module of its own, because
// programs that collect metrics do not need a Prometheus server.
package alerttest
