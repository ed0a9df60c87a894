package dashboard

import (
	"testing"

	"github.com/ojsengine/ojs/internal/cronspec"
)

func TestScheduleInWords(t *testing.T) {
	for _, tc := range []struct{ spec, en, de string }{
		{"* * * * *", "every minute", "jede Minute"},
		{"* * * * * *", "every second", "jede Sekunde"},
		{"*/10 * * * * *", "every 10 seconds", "alle 10 Sekunden"},
		{"*/15 * * * *", "every 15 minutes", "alle 15 Minuten"},
		{"0 */15 * * * ?", "every 15 minutes", "alle 15 Minuten"},
		{"*/60 * * * *", "every hour", "jede Stunde"},
		{"@hourly", "every hour", "jede Stunde"},
		{"5,35 * * * *", "every hour at minute 5 and 35", "jede Stunde zur Minute 5 und 35"},
		{"0 */2 * * *", "every 2 hours", "alle 2 Stunden"},
		{"30 */2 * * 1-5", "every 2 hours at minute 30, Monday to Friday",
			"alle 2 Stunden zur Minute 30, Montag bis Freitag"},
		{"0 3 * * *", "at 03:00, every day", "um 03:00, jeden Tag"},
		{"@daily", "at 00:00, every day", "um 00:00, jeden Tag"},
		{"30 0 12 * * *", "at 12:00:30, every day", "um 12:00:30, jeden Tag"},
		{"0 17,9 * * *", "at 09:00 and 17:00, every day", "um 09:00 und 17:00, jeden Tag"},
		{"0 6,12,18 * * *", "at 06:00, 12:00 and 18:00, every day", "um 06:00, 12:00 und 18:00, jeden Tag"},
		{"0 9 * * mon-FRI", "at 09:00, Monday to Friday", "um 09:00, Montag bis Freitag"},
		{"00 08 * * 0001", "at 08:00, on Monday", "um 08:00, am Montag"},
		{"0 9 * * 7", "at 09:00, on Sunday", "um 09:00, am Sonntag"},
		{"0 9 * * 1,4", "at 09:00, on Monday and Thursday", "um 09:00, am Montag und Donnerstag"},
		{"0 9 * * 0-6", "at 09:00, every day", "um 09:00, jeden Tag"},
		{"*/5 9-17 * * *", "every 5 minutes from 09:00 to 17:55", "alle 5 Minuten von 09:00 bis 17:55"},
		{"* 3 * * *", "every minute from 03:00 to 03:59", "jede Minute von 03:00 bis 03:59"},
		{"30 9-17 * * 1-5", "every hour from 09:30 to 17:30, Monday to Friday",
			"jede Stunde von 09:30 bis 17:30, Montag bis Freitag"},
		{"@monthly", "at 00:00, on the 1st of the month", "um 00:00, am 1. des Monats"},
		{"0 0 2,3,11 * *", "at 00:00, on the 2nd, 3rd and 11th of the month",
			"um 00:00, am 2., 3. und 11. des Monats"},
		{"0 0 1-7 * *", "at 00:00, on the 1st to 7th of the month", "um 00:00, am 1. bis 7. des Monats"},
		{"@yearly", "at 00:00, on the 1st of January", "um 00:00, am 1. Januar"},
		{"0 6 1 jan,JUL *", "at 06:00, on the 1st of January and July", "um 06:00, am 1. Januar und Juli"},
		{"0 6 L * *", "at 06:00, on the last day of the month", "um 06:00, am letzten Tag des Monats"},
		{"0 6 l 2 *", "at 06:00, on the last day of February", "um 06:00, am letzten Tag im Februar"},
		{"0 6 * 6-8 *", "at 06:00, every day, only in June to August",
			"um 06:00, jeden Tag, nur im Juni bis August"},
		{"*/15 * * 12 1", "every 15 minutes, on Monday, only in December",
			"alle 15 Minuten, am Montag, nur im Dezember"},
		{"@every 1h30m", "every 1h 30m", "alle 1h 30m"},
		// No words.
		{"*/7 * * * *", "", ""}, {"0 */5 * * *", "", ""}, {"0 0 */2 * *", "", ""}, {"0 0 * */2 *", "", ""},
		{"0 0 1 * 1", "", ""}, {"0 0 15W * *", "", ""}, {"0 0 * * 5#2", "", ""}, {"0 0 * * 5L", "", ""},
		{"0 0 L,1 * *", "", ""}, {"5/15 * * * *", "", ""}, {"0-30/10 * * * *", "", ""},
		{"0,10,20,30,40,50 6,18 * * *", "", ""}, {"*/5 9-11,14-16 * * *", "", ""}, {"*/5 */2 * * *", "", ""},
		{"30 * 3 * * *", "", ""}, {"0-10 * * * * *", "", ""}, {"0 0 * * 7-1", "", ""},
	} {
		if _, err := cronspec.Parse(tc.spec, ""); err != nil {
			t.Errorf("%s: %v", tc.spec, err)
		}
		for lang, want := range map[string]string{"en": tc.en, "de": tc.de} {
			p := &page{display: display{Lang: lang}}
			if got := p.Schedule(tc.spec); got != want {
				t.Errorf("%s in %s: %q, want %q", tc.spec, lang, got, want)
			}
		}
	}
}

// Text that is no schedule has no words.
func TestNoScheduleHasNoWords(t *testing.T) {
	for _, spec := range []string{"", "@every", "@every x", "@never", "* * * *", "61 * * * *", "a-b * * * *",
		"5-1 * * * *", ", * * * *", "*/0 * * * *", "*/-5 * * * *", "0 0 0 0 *", "* * * * 8", "%d %s * * *"} {
		p := &page{display: display{Lang: "en"}}
		if words := p.Schedule(spec); words != "" {
			t.Errorf("%q is %q", spec, words)
		}
	}
}
