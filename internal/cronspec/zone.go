package cronspec

import (
	"strings"
	"time"
)

// location finds a zone of the IANA database by the name of its area and city.
// Abbreviations are refused, which stand for different times in different places, and so
// are offsets, which know no summer. The database has names for both, some of them
// without an area: hence an area is asked for.
func location(zone string) (*time.Location, error) {
	if zone == "" || zone == "UTC" {
		return time.UTC, nil
	}
	if !strings.Contains(zone, "/") {
		return nil, refuse("time_zone", "%.64q is not written as Area/City, such as Europe/Berlin", zone)
	}
	if offset, ok := strings.CutPrefix(zone, "Etc/GMT"); ok && offset != "" {
		return nil, refuse("time_zone", "%.64q is an offset and not a place, such as Europe/Berlin", zone)
	}
	loc, err := time.LoadLocation(zone)
	if err != nil {
		return nil, refuse("time_zone", "%.64q is not in the time zone database of this machine", zone)
	}
	return loc, nil
}
