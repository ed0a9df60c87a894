// Everything works without this file. With it, open pages keep up to date and have keys.
const root = new URL(document.body.dataset.root, location.href)
const store = { get(k) { try { return localStorage.getItem(k) } catch { return null } }, set(k, v) { try { localStorage.setItem(k, v) } catch { } } }

// A tick loads the page again and replaces the parts that have changed.
const was = new WeakMap()
let on = store.get('ojs_live') !== 'off', source, busy = false, again = false, latest = 0
const parts = doc => new Map([...doc.querySelectorAll('[data-live]')].map(e => [e.dataset.live, e]))
const note = within => { for (const e of parts(within).values()) was.set(e, e.innerHTML) }
note(document)

async function refresh() {
  if (busy) { again = true; return }
  busy = true
  try {
    const answer = await fetch(location.href, { headers: { 'X-Live': '1' } })
    if (!answer.ok) return
    const doc = new DOMParser().parseFromString(await answer.text(), 'text/html')
    const next = parts(doc), main = document.querySelector('main')
    const other = [...next.keys()].join() !== [...parts(document).keys()].join() // a part has come or gone
    if (other && !held(main) && ![...parts(document).values()].some(stays)) replace(main, doc.querySelector('main'))
    for (const [name, old] of parts(document)) {
      const now = next.get(name)
      if (!now) continue
      if (stays(old)) announce(old, now)
      else if (!held(old) && now.innerHTML !== was.get(old)) replace(old, now)
    }
  } catch { /* the server is away; the next tick tries again */ } finally {
    busy = false
    listen()
    if (again) { again = false; setTimeout(refresh, 1000) }
  }
}

// stays: a list keeps its rows while one of them is selected or the pointer is among them.
function stays(part) { return part.dataset.newer && (part.matches(':hover') || part.querySelector('td.pick input:checked')) }

// announce has a button say how many rows are new, and show them.
function announce(old, now) {
  const ids = e => [...e.querySelectorAll('tbody a[title]:not(.quiet)')].map(a => a.title)
  const have = new Set(ids(old)), n = ids(now).filter(id => !have.has(id)).length
  let b = old.parentElement.querySelector('.newer')
  if (!n) { b?.remove(); return }
  if (!b) {
    b = document.createElement('button')
    b.type = 'button'
    b.className = 'newer'
    b.setAttribute('aria-live', 'polite')
    old.before(b)
  }
  b.textContent = old.dataset.newer.replace('%s', n)
  b.onclick = () => replace(old, now)
}

// held: replacing the part would disturb what the reader does in it.
function held(part) {
  const s = getSelection()
  if (s && !s.isCollapsed && part.contains(s.anchorNode)) return true
  const a = document.activeElement
  if (part.contains(a) && a.matches('input:not([type=checkbox]),select,textarea')) return true
  return [...part.querySelectorAll('input:not([type=checkbox]),textarea')].some(e => e.value !== e.defaultValue)
}

function key(e) {
  if (!e || e === document.body) return null
  if (e.id) return '#' + CSS.escape(e.id)
  for (const a of ['href', 'value', 'action', 'aria-label']) if (e.hasAttribute(a)) return `${e.localName}[${a}="${CSS.escape(e.getAttribute(a))}"]`
  const d = e.closest('details[data-keep]')
  return d && e.localName === 'summary' ? `details[data-keep="${CSS.escape(d.dataset.keep)}"]>summary` : null
}

function replace(old, now) {
  const focus = old.contains(document.activeElement) ? key(document.activeElement) : null
  const picked = new Set([...old.querySelectorAll('input[type=checkbox]:checked')].map(e => e.value))
  const open = new Set([...old.querySelectorAll('details[open]')].map(e => e.dataset.keep))
  const places = [...old.querySelectorAll('.scroll,pre')].map(e => [e.scrollLeft, e.scrollTop])
  was.set(old, now.innerHTML)
  if (old.dataset.newer) old.parentElement.querySelector('.newer')?.remove()
  old.replaceChildren(...document.importNode(now, true).childNodes)
  for (const e of old.querySelectorAll('input[type=checkbox]')) e.checked = picked.has(e.value)
  for (const e of old.querySelectorAll('details[data-keep]')) e.open = open.has(e.dataset.keep)
  old.querySelectorAll('.scroll,pre').forEach((e, i) => { if (places[i]) [e.scrollLeft, e.scrollTop] = places[i] })
  note(old)
  pickAll(old)
  charts(old)
  if (focus) old.querySelector(focus)?.focus({ preventScroll: true })
}

// The stream is closed while the page is hidden: HTTP/1.1 has six connections for a host.
function listen() {
  const want = on && !document.hidden && document.querySelector('main [data-live]')
  if (!want) { source?.close(); source = null; return }
  const log = document.querySelector('[data-log]'), url = new URL('live/' + (log ? '?' + log.dataset.log : ''), root)
  if (source?.url === url.href) return
  source?.close()
  let failed = 0
  source = new EventSource(url)
  source.addEventListener('tick', () => {
    failed = 0
    if (Date.now() - latest < 900) return
    latest = Date.now()
    refresh()
  })
  source.onerror = () => { // an answer that is no stream closes the source for good
    const ended = source?.readyState === EventSource.CLOSED
    if (++failed > 2 || ended) { source?.close(); source = null; setTimeout(() => { refresh(); listen() }, ended ? 60000 : 5000) }
  }
}
document.addEventListener('visibilitychange', () => { if (!document.hidden && on) refresh(); listen() })

const button = document.createElement('button')
button.type = 'button'
button.className = 'live'
function show() { button.setAttribute('aria-pressed', on); button.textContent = document.body.dataset.name }
function toggle() { on = !on; store.set('ojs_live', on ? 'on' : 'off'); show(); listen(); if (on) refresh() }
button.onclick = toggle
show()
document.querySelector('.find').before(button)
listen()

// A box in the head of the table selects all of its rows.
function pickAll(within) {
  const head = within.querySelector('th.pick')
  if (!head) return
  const box = document.createElement('input')
  box.type = 'checkbox'
  box.setAttribute('aria-label', head.textContent)
  box.onchange = () => { for (const e of within.querySelectorAll('td.pick input')) e.checked = box.checked }
  head.replaceChildren(box)
}
pickAll(document)

// A chart says the values of the column under the pointer, or of the one that the arrow
// keys have chosen. Enter leads to its jobs.
const says = document.createElement('div'), told = document.createElement('div')
says.className = 'says'
told.className = 'sr'
told.setAttribute('role', 'status') // it is there before it says anything, or no screen reader does
document.body.append(told)
let spot, spotted // the column, and its name, which outlives a tick
function say(hit) {
  spot?.classList.remove('on')
  spot = hit
  if (!hit) { says.remove(); told.textContent = ''; return }
  if (hit.firstChild) { hit.dataset.says = hit.textContent.replaceAll(' · ', '\n'); hit.replaceChildren() } // or the browser says it too
  const plot = hit.closest('.plot'), box = hit.getBoundingClientRect(), all = plot.getBoundingClientRect()
  hit.classList.add('on')
  says.textContent = hit.dataset.says
  spotted = says.textContent.split('\n')[0]
  plot.append(says)
  if (told.textContent !== says.textContent) told.textContent = says.textContent
  says.style.left = Math.max(0, Math.min(box.right + 8, all.right) - all.left - (box.right + 8 + says.offsetWidth > all.right ? says.offsetWidth + box.width + 16 : 0)) + 'px'
}
function charts(within) { for (const e of within.querySelectorAll('.plot')) e.tabIndex = 0 }
const hits = plot => [...plot.querySelectorAll('.hit')]
charts(document)
document.addEventListener('pointerover', e => {
  if (e.pointerType === 'touch') return // the first touch shows the values, the second one leads on
  if (e.target.matches('.hit')) say(e.target)
  else if (spot && !e.target.closest('.plot')) say()
})
document.addEventListener('click', e => { if (e.pointerType === 'touch' && e.target.matches('.hit') && e.target !== spot) { e.preventDefault(); say(e.target) } })
document.addEventListener('focusin', e => {
  if (!e.target.matches('.plot')) return
  const all = hits(e.target)
  say(all.find(h => (h.dataset.says ?? h.textContent).startsWith(spotted)) ?? all.at(-1))
})
document.addEventListener('focusout', e => { if (e.target.matches('.plot')) say() })
document.addEventListener('keydown', e => {
  if (!e.target.matches('.plot')) return
  const all = hits(e.target), at = all.indexOf(spot)
  const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: all.length - 1 }[e.key]
  if (all[to]) { e.preventDefault(); say(all[to]) }
  else if (e.key === 'Enter' && spot?.parentNode.href) location.href = spot.parentNode.href.baseVal
  else if (e.key === 'Escape') say()
})

// The filter suggests terms after those that it has.
const suggest = (line, known, terms) => line.addEventListener('input', () => {
  const before = line.value.slice(0, line.value.lastIndexOf(' ') + 1)
  known.replaceChildren(...terms.map(t => new Option('', before + t)))
})
const line = document.getElementById('q'), known = document.getElementById('known')
if (line && known) suggest(line, known, [...known.options].map(o => o.value))

// So does the search box. Its terms come when it gets the focus for the first time.
const find = document.querySelector('.find input')
find.addEventListener('focus', async () => {
  const answer = await fetch(new URL('search/terms/', root)).catch(() => 0)
  if (!answer.ok) return
  const list = document.createElement('datalist'), terms = (await answer.text()).split('\n')
  list.id = 'terms'
  list.replaceChildren(...terms.map(t => new Option('', t)))
  find.after(list)
  find.setAttribute('list', 'terms')
  suggest(find, list, terms)
}, { once: true })

// Keys. None of them acts on a job: they lead to forms.
let g = 0
const pages = { o: '', j: 'jobs/', q: 'queues/', t: 'types/', f: 'failures/', d: 'dead/', s: 'due/', c: 'cron/', w: 'workers/', r: 'running/' }
function step(by) {
  const links = [...document.querySelectorAll('main tbody tr td a')].filter((a, i, all) => all.findIndex(b => b.closest('tr') === a.closest('tr')) === i)
  const at = links.findIndex(a => a.closest('tr').contains(document.activeElement))
  links[Math.min(links.length - 1, Math.max(0, at + by))]?.focus()
}
// act leads to the page that asks before an action on the selected rows, or else on the
// row with the focus. The page has only actions that its reader may do to its jobs.
const acts = { r: 'retry', c: 'cancel', e: 'delete' }
function act(what) {
  const form = document.getElementById('many'), choice = document.getElementById('do')
  if (![...choice?.options ?? []].some(o => o.value === what)) return
  const picked = () => document.querySelector('td.pick input:checked')
  const box = document.activeElement?.closest('tr')?.querySelector('td.pick input')
  if (box && !picked()) box.checked = true
  if (!picked()) return
  choice.value = what
  form.requestSubmit()
}
// theme goes from light to dark and back. A cookie of the first overview keeps it.
function theme() {
  const page = document.documentElement.dataset
  page.theme = (page.theme ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')) === 'dark' ? 'light' : 'dark'
  fetch(new URL(`${document.body.dataset.top}?set=display&theme=${page.theme}`, location.href), { redirect: 'manual', keepalive: true })
}
document.addEventListener('keydown', e => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.matches('input:not([type=checkbox]),select,textarea')) return
  if (g && Date.now() - g < 1500 && e.key in pages) { location.href = new URL(pages[e.key], root); return }
  g = e.key === 'g' ? Date.now() : 0
  if (e.key === '/') { e.preventDefault(); (document.getElementById('q') ?? document.querySelector('.find input')).focus() }
  else if (e.key === 'j') step(1)
  else if (e.key === 'k') step(-1)
  else if (e.key === 'l') toggle()
  else if (e.key === 't') theme()
  else if (e.key === 'a') { e.preventDefault(); document.getElementById('do')?.focus() }
  else if (e.key in acts) act(acts[e.key])
  else if (e.key === '?') location.href = new URL('display/', root)
  else if (e.key === 'x') {
    const box = document.activeElement?.closest('tr')?.querySelector('td.pick input')
    if (box) box.checked = !box.checked
  }
})

// In a narrow window the navigation is a row, whose entry of this page may be out of sight.
document.querySelector('.nav [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' })

// The display page offers the zone of the browser.
const zones = document.getElementById('zones')
if (zones) {
  const zone = new Option(Intl.DateTimeFormat().resolvedOptions().timeZone)
  zones.prepend(zone)
}
