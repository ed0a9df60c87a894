package server

import (
	"net"
	"net/http"
	"reflect"
	"slices"

	"github.com/ojsengine/ojs"
)

// permission is what a route needs.
type permission uint8

const (
	permHealth     permission = iota // nothing: the health
	permAny                          // to be known
	permEnqueue                      // new jobs and workflows
	permWork                         // fetch, ack, nack, heartbeats
	permInspect                      // read jobs, queues, events
	permCancel                       // cancel a job or a workflow
	permOperate                      // change queues, dead letters, recurring jobs, schemas
	permAdminRead                    // under /admin, and the workers
	permAdminWrite                   // under /admin
	permPurge                        // delete many jobs
	permCount
)

// Role is what a principal may do (F193).
type Role string

// The roles. Scopes may be used as roles.
const (
	RoleProducer Role = "producer" // enqueue
	RoleWorker   Role = "worker"   // fetch, ack, nack, heartbeat
	RoleOperator Role = "operator" // enqueue, cancel, inspect
	RoleAdmin    Role = "admin"    // everything

	ScopeDataRead   Role = "ojs:data:read"
	ScopeDataWrite  Role = "ojs:data:write"
	ScopeAdminRead  Role = "ojs:admin:read"
	ScopeAdminWrite Role = "ojs:admin:write"
	ScopeAdminPurge Role = "ojs:admin:purge"
)

var permits = map[Role][]permission{
	RoleProducer: {permEnqueue},
	RoleWorker:   {permWork},
	RoleOperator: {permEnqueue, permCancel, permInspect},
	RoleAdmin: {permEnqueue, permWork, permInspect, permCancel, permOperate, permAdminRead,
		permAdminWrite, permPurge},
	ScopeDataRead:   {permInspect},
	ScopeDataWrite:  {permEnqueue, permWork, permCancel, permOperate},
	ScopeAdminRead:  {permInspect, permAdminRead},
	ScopeAdminWrite: {permInspect, permCancel, permOperate, permAdminRead, permAdminWrite},
	ScopeAdminPurge: {permPurge},
}

// Grant gives a role, for some queues or for all.
type Grant struct {
	Role   Role
	Queues []string // empty: all
}

// Principal is a caller who has been proved.
type Principal struct {
	Name   string // in the history of jobs and in the audit
	Grants []Grant
}

// queues returns the queues for which the principal has a permission, and whether that is
// all of them.
func (p *Principal) queues(need permission) (some []string, all bool) {
	if p == nil { // there is no authenticator
		return nil, true
	}
	for _, g := range p.Grants {
		if !slices.Contains(permits[g.Role], need) {
			continue
		}
		if len(g.Queues) == 0 {
			return nil, true
		}
		some = append(some, g.Queues...)
	}
	return some, false
}

// Authenticator proves who makes a request. It must not answer. An error is not
// told to the caller; a nil Principal without an error is one, too.
type Authenticator interface {
	Authenticate(r *http.Request) (*Principal, error)
}

// identify proves the caller, and checks the permission of the route.
func (s *Server) identify(c *call, need permission) error {
	if s.conf.auth == nil || need == permHealth {
		return nil
	}
	who, err := s.conf.auth.Authenticate(c.r)
	if err != nil || who == nil {
		s.auditAs(c, "auth.failure", "failure", c.r.Method+" "+c.r.URL.Path)
		r := refuse(http.StatusUnauthorized, codeAnonymous, "the request has no valid credentials")
		r.header = [][2]string{{"WWW-Authenticate", `Bearer realm="ojs"`}}
		return r
	}
	c.who = who
	c.ctx = ojs.WithActor(c.r.Context(), who.Name)
	if need == permAny {
		return nil
	}
	if some, all := who.queues(need); !all && (len(some) == 0 || c.rt.whole) {
		return s.denied(c)
	}
	return nil
}

// still proves the caller of a connection again: a key may be revoked, and a certificate
// may end. It reports false if the caller may not have all of the subscriptions.
func (c *call) still(subs ...*subscription) bool {
	before := c.who
	if c.s.identify(c, c.rt.need) != nil {
		return false
	}
	if reflect.DeepEqual(before, c.who) {
		return true
	}
	for _, sub := range subs {
		var err error
		switch {
		case sub.id == "":
			_, err = c.s.channel(c, sub.ch.String())
		case len(sub.queues) == 0:
			err = c.mayAll()
		default:
			_, err = c.narrow(sub.queues)
		}
		if err != nil {
			return false
		}
	}
	return true
}

func (s *Server) denied(c *call) error {
	s.auditAs(c, "auth.denied", "denied", c.r.Method+" "+c.r.URL.Path)
	return refuse(http.StatusForbidden, codeDenied, "the caller may not do this")
}

// may checks the permission of the route for a queue.
func (c *call) may(queue string) error { return c.mayDo(c.rt.need, queue) }

// mayDo checks a permission for a queue.
func (c *call) mayDo(need permission, queue string) error {
	some, all := c.who.queues(need)
	if all || slices.Contains(some, queue) {
		return nil
	}
	return c.s.denied(c)
}

// mayAll checks the permission of the route for every queue.
func (c *call) mayAll() error {
	if _, all := c.who.queues(c.rt.need); !all {
		return c.s.denied(c)
	}
	return nil
}

// mayAllOr checks the permission of the route for a queue, and for every queue if that is
// "".
func (c *call) mayAllOr(queue string) error {
	if queue == "" {
		return c.mayAll()
	}
	return c.may(queue)
}

// narrow returns the queues that a listing may show: those that are asked for, or all
// (nil), as far as the caller may see them.
func (c *call) narrow(asked []string) ([]string, error) {
	some, all := c.who.queues(c.rt.need)
	switch {
	case all:
		return asked, nil
	case len(asked) == 0:
		return some, nil
	}
	for _, queue := range asked {
		if !slices.Contains(some, queue) {
			return nil, c.s.denied(c)
		}
	}
	return asked, nil
}

// audit reports a change that the route has made.
func (c *call) audit(event, detail string) { c.s.auditAs(c, event, "success", detail) }

func (s *Server) auditAs(c *call, event, outcome, detail string) {
	if s.conf.audit == nil {
		return
	}
	name := ""
	if c.who != nil {
		name = c.who.Name
	}
	s.conf.audit(AuditEntry{Timestamp: s.now(), EventType: event, Principal: name, SourceIP: address(c.r),
		CorrelationID: c.id, Outcome: outcome, Detail: detail})
}

// address is that of the caller's machine, without the port.
func address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
