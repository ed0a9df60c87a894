package policy

// Error types of failures without a type of the handler's. They match
// ojs.RetryPolicy.NonRetryableErrors like any other, except ErrorTypeLeaseExpired and
// ErrorTypeWorkerDeath, which are always retryable (OJS retry, section 9.2).
const (
	ErrorTypeError        = "error"               // an error without a type
	ErrorTypePanic        = "panic"               // the handler panicked
	ErrorTypeGoexit       = "goexit"              // the handler called runtime.Goexit
	ErrorTypeArgs         = "args_invalid"        // the args do not decode into the handler's type
	ErrorTypeTimeout      = "timeout"             // the attempt exceeded its timeout
	ErrorTypeTotalTimeout = "total_timeout"       // the job exceeded its total timeout
	ErrorTypeLeaseExpired = "visibility_timeout"  // the lease of the attempt expired
	ErrorTypeWorkerDeath  = "worker_death"        // the worker that held the job was silent for too long
	ErrorTypeEnqueueTTL   = "enqueue_ttl_expired" // the job had not started when its enqueue TTL was over
	ErrorTypeExpired      = "expired"             // the job was still waiting at its ExpiresAt
	ErrorTypeDropped      = "queue_overflow"      // the job made room in a full queue
	ErrorTypeRateLimited  = "rate_limited"        // a limit with OnLimitDrop kept the job from starting
	ErrorTypeDependency   = "dependency"          // the jobs that the job waited for ended otherwise
)
