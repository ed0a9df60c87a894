package storagetest

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/ojsengine/ojs/internal/document"
	"github.com/ojsengine/ojs/storage"
)

// put stores values at the time of the case: keys, and data unless it is empty.
func (c *C) put(pairs ...string) {
	c.tb.Helper()
	var list []document.Value
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, document.Value{Key: pairs[i], Data: []byte(pairs[i+1])})
	}
	c.noErr("PutValues", document.Of(c.S).PutValues(c.ctx, c.now, list))
}

// holds wants the values of a prefix, after a key, to be these: "key=data".
func (c *C) holds(prefix, after string, limit int, want ...string) {
	c.tb.Helper()
	list, err := document.Of(c.S).Values(c.ctx, c.now, prefix, after, limit)
	c.noErr("Values", err)
	var got []string
	for _, v := range list {
		got = append(got, v.Key+"="+string(v.Data))
	}
	if !slices.Equal(got, want) {
		c.failf("Values(%q, %q, %d) returned %q, not %q", prefix, after, limit, got, want)
	}
}

var valueCases = []Case{
	{"values-1", "Values/Put", "storage.DocumentStore",
		"A value replaces the one of its key, and one without data deletes it.", needsNothing, func(c *C) {
			c.put()
			c.put("a", "1", "b", "2", "c", "3")
			c.put("b", "20", "c", "")
			c.holds("", "", 0, "a=1", "b=20")
			c.put("none", "", "a", "9", "a", "10")
			c.holds("", "", 0, "a=10", "b=20")
			c.put("a", "")
			c.put("a", "11")
			c.holds("", "", 0, "a=11", "b=20")
			c.put("a", "", "b", "", "c", "30")
			c.holds("", "", 0, "c=30")
			large := string(bytes.Repeat([]byte{0, 255, '\n', 'x'}, 1<<16))
			c.put("large", large)
			c.holds("l", "", 0, "large="+large)
		}},
	{"values-2", "Values/Order", "storage.DocumentStore",
		"Values come in the order of the bytes of their keys, those of a prefix, after a key.", needsNothing, func(c *C) {
			for _, key := range []string{"a/2", "a/10", "B", "a", "a/1", "b", "a~", "a_b", "a%b"} {
				c.put(key, "x")
			}
			c.holds("", "", 0, "B=x", "a=x", "a%b=x", "a/1=x", "a/10=x", "a/2=x", "a_b=x", "a~=x", "b=x")
			c.holds("a/", "", 0, "a/1=x", "a/10=x", "a/2=x")
			c.holds("a/", "a/1", 0, "a/10=x", "a/2=x")
			// The prefix is a key, too.
			c.holds("a", "B", 0, "a=x", "a%b=x", "a/1=x", "a/10=x", "a/2=x", "a_b=x", "a~=x")
			c.holds("a/1", "a", 0, "a/1=x", "a/10=x")
			c.holds("a/1", "a/1", 0, "a/10=x")
			c.holds("B", "", 0, "B=x")
			c.holds("a", "b", 0)
			c.holds("a/", "a/11", 0, "a/2=x")
			c.holds("a/", "B", 2, "a/1=x", "a/10=x")
			c.holds("a/", "a/2", 0)
			c.holds("a_", "", 0, "a_b=x")
			c.holds("a%", "", 0, "a%b=x")
			c.holds("a", "", 1, "a=x")
			c.holds("c", "", 0)

			// A value that is gone, or has expired, takes no place on a page.
			c.put("a/10", "")
			c.holds("a/", "", 2, "a/1=x", "a/2=x")
			gone := document.Value{Key: "a/1", Data: []byte("x"), Expires: c.now}
			before := c.now.Add(-time.Second)
			c.noErr("PutValues", document.Of(c.S).PutValues(c.ctx, before, []document.Value{gone}))
			c.holds("a", "a%b", 2, "a/2=x", "a_b=x")
		}},
	{"values-3", "Values/Expiry", "storage.DocumentStore",
		"A value that has expired is not there, and does not stay for ever.", needsNothing, func(c *C) {
			expiring := func(key string, in time.Duration) document.Value {
				return document.Value{Key: key, Data: []byte("x"), Expires: c.now.Add(in)}
			}
			vs := c.S
			c.noErr("PutValues", document.Of(vs).PutValues(c.ctx, c.now, []document.Value{
				expiring("hour", time.Hour), expiring("minute", time.Minute), expiring("past", -time.Second),
				{Key: "never", Data: []byte("x")},
			}))
			c.holds("", "", 0, "hour=x", "minute=x", "never=x")
			list, err := document.Of(vs).Values(c.ctx, c.now, "hour", "", 0)
			c.noErr("Values", err)
			if len(list) != 1 || !list[0].Expires.Equal(c.now.Add(time.Hour)) {
				c.failf("Values returned %+v", list)
			}
			c.pass(time.Minute - time.Millisecond)
			c.holds("m", "", 0, "minute=x")
			c.pass(time.Millisecond)
			c.holds("", "", 0, "hour=x", "never=x")
			c.put("hour", "y") // which expires no more
			c.pass(2 * time.Hour)
			c.put("other", "x")
			c.holds("", "", 0, "hour=y", "never=x", "other=x")
			before := c.now.Add(-48 * time.Hour)
			if list, err = document.Of(vs).Values(c.ctx, before, "", "", 0); err != nil || len(list) != 3 {
				c.failf("values that have expired are stored still: %+v, %v", list, err)
			}
		}},
	{"values-4", "Values/Limit", "DocumentQuery.Limit",
		"A page has 1000 values at most.", needsNothing, func(c *C) {
			var pairs []string
			for i := range 1001 {
				pairs = append(pairs, fmt.Sprintf("k%04d", i), "x")
			}
			c.put(pairs...)
			for _, limit := range []int{0, 1000, 1001} {
				q := storage.DocumentQuery{Prefix: "k", Limit: limit}
				list, err := c.S.Documents(c.ctx, storage.KindValue, q)
				c.noErr("Documents", err)
				if len(list) != 1000 || list[999].Name != "k0999" {
					c.failf("a page with the limit %d has %d values", limit, len(list))
				}
			}
			c.holds("k", "k0999", 0, "k1000=x")
		}},
	{"values-6", "Values/Reopened", "storage.DocumentStore",
		"Values outlive a durable storage.", needsReopen, func(c *C) {
			c.put("a", "1", "b", "2", "b", "")
			c.noErr("PutValues", document.Of(c.S).PutValues(c.ctx, c.now,
				[]document.Value{{Key: "c", Data: []byte("3"), Expires: c.now.Add(time.Hour)}}))
			c.reopen()
			c.holds("", "", 0, "a=1", "c=3")
			c.pass(time.Hour)
			c.holds("", "", 0, "a=1")
		}},
	{"values-7", "Values/Notices", "Notice.Values",
		"Values that are put are a notice to others.", needsNotices, func(c *C) {
			e := c.listen("other")
			c.put("a", "1")
			e.hears("values were put", func(n storage.Notice) bool { return n.Values })
			e.stop()
		}},
}
