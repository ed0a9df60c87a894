package dashboard

// dones are what a page says after the action that led to it. An address can name no
// other text.
var dones = map[string]string{
	string(Delete): "The job is deleted.",
	string(Retry):  "The job is available again.",
	string(Cancel): "The job is cancelled.",
	string(Run):    "The job is available.",
	string(Copy):   "This is the copy.",
	string(Pause):  "Paused.",
	string(Resume): "Resumed.",
	string(Remove): "The entry is removed.",
	string(Quiet):  "The worker takes no more jobs.",
	string(Drain):  "The queue drains: it refuses new jobs.",
	string(Edit):   "The job is changed.",
	string(Move):   "The job is in this queue.",

	string(Reschedule): "The job has another time.",
	string(Prioritize): "The job has another priority.",

	string(Enqueue): "The job is enqueued.",
	"again":         "The form was confirmed before: this is the job of then, and no other was made.",

	string(Configure): "The queue is configured in this engine.",

	string(Set):            "The bounds are set.",
	string(Clear):          "The bounds are cleared.",
	string(Block):          "Blocked.",
	"workflow-retry":       "The failed steps of the workflow run again.",
	"workflow-cancel":      "The workflow is cancelled.",
	"entry":                "The entry is saved.",
	"unblock":              "The block has ended.",
	"pause-unknown-queue":  "Paused. No job is in this queue, and no engine names it: check the name.",
	"drain-unknown-queue":  "The queue drains. No job is in this queue, and no engine names it: check the name.",
	"resume-unknown-queue": "Resumed. No job is in this queue, and no engine names it: check the name.",
	"pause-unknown-type":   "Paused. No engine has a handler of this type, and no job is of it: check the name.",
	"resume-unknown-type":  "Resumed. No engine has a handler of this type, and no job is of it: check the name.",
	"ordered":              "The engine is told, and obeys with its next report.",
}

// did is the verb in the address after an action on a queue or type.
func did(do Verb, known bool, on string) string {
	if known {
		return string(do)
	}
	return string(do) + "-unknown-" + on
}

func done(verb string) string { return dones[verb] }
