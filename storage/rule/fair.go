package rule

import "github.com/ojsengine/ojs"

// Fairness is start-time fair queueing (Goyal, Vin and Cheng). A level is the available
// jobs of one queue and priority.
//
//   - A job with a fairness key has a start tag while it is available, at least 1. Claims
//     go by priority, tag and place. Jobs without a key have the tag 0.
//   - A level has a virtual time: the greatest tag that was claimed there, and 1 before.
//   - A claim raises the virtual time to the tag, and charges the key of the job there
//     its Finish, if that is more than before. A charge is forgotten once the virtual
//     time has reached it.
//   - A job that becomes available, in whichever way, gets the greatest of the virtual
//     time, what its key was charged, and the Finish of the job of its key and level that
//     waits in the last place before it. So jobs that end without a claim charge nothing.
//   - A job keeps its tag with Unclaim, and while it stays available in its level with
//     its key. Neither the virtual time nor a charge falls.
//   - A limit may have set a job aside until others have gone past its tag. A claim that
//     would take a job with a rate limit first gives it the tag that it would get then in
//     its place, if that is greater, and goes on. It does so for MostAnew jobs at most.

// turn is what the start of a job of weight 1 costs its key.
const turn = 1 << 20

// MostAnew bounds the work of a claim behind a limit that has been closed for long.
const MostAnew = 32

// Finish is the finish tag of a job with a start tag.
func Finish(tag int64, f ojs.Fairness) int64 { return tag + turn/int64(max(f.Weight, 1)) }
