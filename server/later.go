package server

// laterRoutes are those of workflows, bulk, events, schemas, results and limits.
var laterRoutes []route

var deadLetterRoutes, queueRoutes, cronRoutes, adminRoutes []route
