package simulation

// invariants are what is checked, by number. The package's documentation explains them.
var invariants = map[int]string{
	1:  "every accepted job ends",
	2:  "no more attempts than the policy allows",
	3:  "nothing before its time",
	4:  "nothing after its time",
	5:  "one holder at a time",
	6:  "only the holder settles",
	7:  "each transition is told once, in order",
	8:  "no two counted equal jobs",
	9:  "priority, then first in first out",
	10: "bounded queues stay within their depth",
	11: "a handler whose job is taken is told",
	12: "counts equal listings",
	13: "waits are answered",
	14: "Run ends cleanly and holds nothing",
	15: "limits hold in each engine",
	16: "paused queues deliver nothing, draining ones accept nothing",
	17: "an expired job does not run",
	18: "only what may go is deleted",
	19: "the outcome stored is that of the attempt",
	20: "each run of a recurring entry is made once",
	21: "answers are true",
}
