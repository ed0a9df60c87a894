package policy_test

import (
	"testing"
	"time"

	"github.com/ojsengine/ojs"
	"github.com/ojsengine/ojs/policy"
)

// The policies of the examples (OJS retry, sections 12.3 to 12.5).
var (
	payment = ojs.RetryPolicy{
		MaxAttempts: 25, InitialInterval: 15 * time.Second, BackoffCoefficient: 4, MaxInterval: time.Hour,
		NonRetryableErrors: []string{"payment.card_stolen", "payment.card_expired", "validation.*"},
		OnExhaustion:       ojs.ExhaustionDeadLetter,
	}
	crm = ojs.RetryPolicy{
		MaxAttempts: 5, InitialInterval: 30 * time.Second, MaxInterval: 15 * time.Minute,
		NonRetryableErrors: []string{"auth.invalid_credentials", "resource.not_found"},
		OnExhaustion:       ojs.ExhaustionDeadLetter,
	}
	polling = ojs.RetryPolicy{
		MaxAttempts: 60, InitialInterval: 10 * time.Second, BackoffCoefficient: 1,
		MaxInterval: 10 * time.Second, Jitter: ojs.JitterOff,
		OnExhaustion: ojs.ExhaustionDeadLetter,
	}
)

func TestExamples(t *testing.T) {
	once, dead := ojs.RetryPolicy{MaxAttempts: 1},
		ojs.RetryPolicy{MaxAttempts: 1, OnExhaustion: ojs.ExhaustionDeadLetter}
	const again, gone, kept = "again", "gone", "kept"
	tests := []struct {
		name    string
		p       ojs.RetryPolicy
		attempt int
		typ     string
		code    ojs.Code
		want    string
	}{
		{"A023 A132 B003 B022 analytics.page_view", once, 1, "x.y", "", gone},
		{"A024 B003 max_attempts 0", ojs.RetryPolicy{MaxAttempts: ojs.NoRetry}, 1, "x.y", "", gone},
		{"A024 max_attempts 0 and RETRY", ojs.RetryPolicy{MaxAttempts: ojs.NoRetry}, 1, "x.y",
			ojs.CodeRetry, gone},
		{"A004 A100 A133 email.send_welcome, first", ojs.RetryPolicy{}, 1, "x.y", "", again},
		{"A025 A133 email.send_welcome, second", ojs.RetryPolicy{}, 2, "x.y", "", again},
		{"A009 A025 A039 A133 email.send_welcome, third", ojs.RetryPolicy{}, 3, "x.y", "", gone},
		{"A136 card_stolen", payment, 1, "payment.card_stolen", "", kept},
		{"A136 card_expired", payment, 1, "payment.card_expired", "", kept},
		{"A136 another", payment, 1, "payment.card_declined", "", again},
		{"A137 B023 validation.amount", payment, 1, "validation.amount", "", kept},
		{"A026 A138 payment.charge, 24th", payment, 24, "external.timeout", "", again},
		{"A026 A040 A138 payment.charge, 25th", payment, 25, "external.timeout", "", kept},
		{"A140 auth.invalid_credentials", crm, 1, "auth.invalid_credentials", "", kept},
		{"A141 resource.not_found", crm, 1, "resource.not_found", "", kept},
		{"A142 service_unavailable", crm, 1, "external.crm.service_unavailable", "", again},
		{"A143 export.check_status, 59th", polling, 59, "export.not_ready", "", again},
		{"A143 export.check_status, 60th", polling, 60, "export.not_ready", "", kept},
		{"A145 compliance.generate_report", dead, 1, "x.y", "", kept},
		{"A089 A146 card_declined and DISCARD", payment, 1, "payment.card_declined", ojs.CodeDiscard, gone},
		{"A090 A147 B019 card_stolen and DEAD_LETTER", payment, 1, "payment.card_stolen",
			ojs.CodeDeadLetter, kept},
		{"A148 external.timeout and RETRY", payment, 1, "external.timeout", ojs.CodeRetry, again},
		{"A149 external.server_error without a code", payment, 1, "external.server_error", "", again},
		{"A089 DISCARD beats on_exhaustion dead_letter and the list", payment, 25, "payment.card_stolen",
			ojs.CodeDiscard, gone},
		{"A091 FAIL beats on_exhaustion dead_letter", payment, 25, "x.y", ojs.CodeFail, gone},
		{"A090 DEAD_LETTER beats on_exhaustion discard", ojs.RetryPolicy{}, 3, "x.y",
			ojs.CodeDeadLetter, kept},
		{"A092 reading 12 RETRY does not beat the list", payment, 1, "payment.card_stolen",
			ojs.CodeRetry, kept},
		{"A027 RETRY does not add attempts", ojs.RetryPolicy{}, 3, "x.y", ojs.CodeRetry, gone},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := job(tt.attempt, tt.p)
			d := policy.Decide(j, policy.Outcome{Err: &ojs.Error{Type: tt.typ, Message: "m", Code: tt.code}},
				now, 0.5, nil)
			got := again
			if d.State == ojs.StateDiscarded {
				got = gone
			}
			if d.DeadLetter {
				got = kept
			}
			if got != tt.want || (got == again) != (d.State == ojs.StateRetryable) {
				t.Errorf("decision %+v, want %s", d, tt.want)
			}
			if got == again && d.RunAt.Sub(now) != policy.Delay(j.Retry, tt.attempt, 0.5) {
				t.Errorf("it runs after %v, which is not the normal backoff", d.RunAt.Sub(now))
			}
		})
	}
}
