package main

import "github.com/alecthomas/kong"

const description = "Look at the jobs of a storage, and change them."

// flags are those of every verb. A setting names the variable of the flag.
type flags struct {
	Storage string `short:"s" group:"global" setting:"OJS_STORAGE" placeholder:"ADDR" help:"The storage: postgres://…, the path of a SQLite file, memory for serve and bench, or https://… of a server."`
	Schema  string `group:"global" setting:"OJS_SCHEMA" placeholder:"NAME" help:"The schema of PostgreSQL, \"ojs\" by default."`
	Output  string `short:"o" group:"global" setting:"OJS_OUTPUT" enum:"table,wide,json,ndjson,id" default:"table" placeholder:"FORM" help:"table, wide, json, ndjson or id."`
	Color   string `group:"global" setting:"OJS_COLOR" enum:"auto,always,never" default:"auto" placeholder:"WHEN" help:"auto, always or never."`
	Actor   string `group:"global" setting:"OJS_ACTOR" placeholder:"NAME" help:"Your name in the history of jobs, $USER by default."`
	Config  string `group:"global" placeholder:"FILE" help:"The file with settings ($$OJS_CONFIG)."`
}

// groups are the headings of the help.
var groups = []kong.Group{
	{Key: "look", Title: "Look:"},
	{Key: "change", Title: "Change:"},
	{Key: "parts", Title: "Queues, schedules and workers:"},
	{Key: "keep", Title: "Storage:"},
	{Key: "tool", Title: "Command:"},
	{Key: "global", Title: "Global flags:"},
}

// verbs are what the command does.
type verbs struct {
	flags

	Stats    statsVerb    `cmd:"" group:"look" help:"Count jobs by state and queue."`
	Jobs     jobsVerb     `cmd:"" group:"look" help:"List jobs, or count them."`
	Job      jobVerb      `cmd:"" group:"look" help:"Show one job."`
	Explain  explainVerb  `cmd:"" group:"look" help:"Say why a job does not run."`
	Failures failuresVerb `cmd:"" group:"look" help:"Group failed jobs by their error."`
	Dead     deadVerb     `cmd:"" group:"look" help:"List dead letters."`
	Top      topVerb      `cmd:"" group:"look" help:"Watch queues, running jobs and failures."`
	History  historyVerb  `cmd:"" group:"look" help:"Count what has happened to jobs, by time."`
	Tail     tailVerb     `cmd:"" group:"look" help:"Show what happens to jobs, as it happens."`

	Enqueue    enqueueVerb    `cmd:"" group:"change" help:"Enqueue a job, or many from the standard input."`
	Retry      retryVerb      `cmd:"" group:"change" help:"Run discarded jobs again, and retryable ones at once."`
	Cancel     cancelVerb     `cmd:"" group:"change" help:"Cancel jobs."`
	Delete     deleteVerb     `cmd:"" group:"change" help:"Delete jobs that have ended."`
	Move       moveVerb       `cmd:"" group:"change" help:"Move waiting jobs to another queue."`
	Activate   activateVerb   `cmd:"" group:"change" help:"Make pending jobs available."`
	Reschedule rescheduleVerb `cmd:"" group:"change" help:"Give waiting jobs another time."`

	Queues    queuesVerb    `cmd:"" group:"parts" help:"List queues; pause, drain, resume or limit them."`
	Limits    limitsVerb    `cmd:"" group:"parts" help:"List limits; set, clear or block them."`
	Cron      cronVerb      `cmd:"" group:"parts" help:"List recurring jobs; run, pause, resume or sync them."`
	Workflows workflowsVerb `cmd:"" group:"parts" help:"List workflows; show, retry or cancel one."`
	Workers   workersVerb   `cmd:"" group:"parts" help:"List what takes the jobs."`
	Cells     cellsVerb     `cmd:"" group:"parts" help:"List the cells of a fleet; move partitions."`

	Doctor     doctorVerb     `cmd:"" group:"keep" help:"Look for faults, with the fix of each."`
	Quarantine quarantineVerb `cmd:"" group:"keep" help:"List records that do not decode; release or delete them."`
	Migrate    migrateVerb    `cmd:"" group:"keep" help:"Show or change the version of the schema."`
	Export     exportVerb     `cmd:"" group:"keep" help:"Write all jobs to a file, for another storage."`
	Bench      benchVerb      `cmd:"" group:"keep" help:"Measure what the storage does."`
	Import     importVerb     `cmd:"" group:"keep" help:"Store the jobs of an export."`

	Serve   serveVerb      `cmd:"" group:"tool" help:"Serve the dashboard."`
	Show    configVerb     `cmd:"" name:"config" group:"tool" help:"Show the settings in force, and where each is from."`
	Shell   completionVerb `cmd:"" name:"completion" group:"tool" help:"Print the completion of a shell."`
	Man     manVerb        `cmd:"" group:"tool" help:"Print the manual page, in roff."`
	Version versionVerb    `cmd:"" group:"tool" help:"Print the version."`
}
