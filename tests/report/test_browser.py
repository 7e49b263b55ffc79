"""The page in a real browser."""

import csv
import io
import re
import shutil
from itertools import pairwise, product

import numpy as np
import pytest
from PIL import Image
from report.runs import NAMES

from torchlace.report import write_report

SPHERE = "#d0 .card:not([hidden]) .sphere"
SHOWN = ".plot:not([hidden] *)"
# One sphere above the other: fewer are drawn at a time, which takes long without a GPU.
SMALL = (700, 600)


def see(page, selector):
    """Scroll there and wait until what is there is drawn."""
    element = page.locator(selector).first
    element.scroll_into_view_if_needed()
    page.wait_for_function("e => e.dataset.drawn === 'true'", arg=element.element_handle())
    return element


def see_all(page):
    for number in range(page.locator(SHOWN).count()):
        element = page.locator(SHOWN).nth(number)
        element.scroll_into_view_if_needed()
        page.wait_for_function("e => e.dataset.drawn === 'true'", arg=element.element_handle())


def column(page, table, number):
    cells = page.locator(f"[aria-labelledby={table}] tbody tr > :nth-child({number})")
    return [text.removesuffix(" (best)") for text in cells.all_text_contents()]


def points(sphere):
    return sphere.evaluate("e => Array.from(e.data[2].x)")


def test_opens_without_error_or_request_draws_every_figure_and_fits_every_screen(opened, made):
    page = opened()
    see_all(page)
    assert [said for said in page.said if said[0] == "error"] == []
    asked = [url for url in page.requests if not url.startswith("data:")]
    assert asked == [made.page.as_uri()]
    kinds = page.locator(SHOWN).evaluate_all("all => all.map(e => e.dataset.plot)")
    assert set(kinds) == {
        *("bars", "curves", "sphere", "confusion", "reliability", "angles", "spectrum")
    }
    empty = page.locator(SHOWN).evaluate_all(
        "all => all.filter(e => e.dataset.plot !== 'sphere').filter(e => "
        "!e.querySelector('.trace, .points path, .hm image, .heatmaplayer image')).length"
    )
    assert empty == 0
    for width in (1280, 768, 390, 320):
        page.set_viewport_size({"width": width, "height": 844})
        # Figures follow a little later.
        page.wait_for_function(
            "([html, width]) => html.clientWidth === width && html.scrollWidth <= width",
            arg=[page.evaluate_handle("document.documentElement"), width],
        )


def test_long_names_of_runs_are_whole_and_fit_every_screen(opened, made, tmp_path):
    long = [tmp_path / ("a_name_of_a_run_" * 5 + end) for end in ("one", "other")]
    for path, run in zip(long, ("lace-0", "softmax-0"), strict=True):
        shutil.copytree(made.runs[run], path)
    written = write_report(long, tmp_path / "page.html", method="pca", device="cpu").path
    for width in (1280, 400):
        page = opened(width, path=written)
        whole = "all => all.every(e => e.scrollWidth <= e.clientWidth)"
        assert page.locator(".runs .chip, .card:visible h4").evaluate_all(whole)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_first_row_is_there_at_once_and_its_spheres_have_colours(opened):
    page = opened()
    hero = page.locator(".hero").first
    assert "Ahead of" in hero.inner_text()
    balls = hero.locator(".ball svg")
    assert balls.count() == 2
    for number in range(2):
        picture = Image.open(io.BytesIO(balls.nth(number).screenshot())).convert("RGB")
        vivid = np.asarray(picture).astype(int)
        vivid = vivid[np.ptp(vivid, axis=-1) > 80] // 32
        assert len(np.unique(vivid, axis=0)) >= 5


def test_the_spheres_show_colours(opened):
    page = opened(*SMALL)
    sphere = see(page, SPHERE)
    for _ in range(10):
        picture = np.asarray(Image.open(io.BytesIO(sphere.screenshot())).convert("RGB")).astype(int)
        vivid = picture[np.ptp(picture, axis=-1) > 80] // 32
        if len(np.unique(vivid, axis=0)) >= 5:
            return
        page.wait_for_timeout(500)
    raise AssertionError("hardly any colours on the sphere")


def test_the_switch_changes_the_space(opened):
    page = opened(*SMALL)
    sphere = see(page, "#d0 .card:not([hidden]):has(h4:text-is('lace-0')) .sphere")
    before = points(sphere)
    page.locator("label", has_text="After whitening").first.click()
    after = points(see(page, "#d0 .card:not([hidden]):has(h4:text-is('lace-0')) .sphere"))
    assert len(after) == len(before) == 359
    assert after != before
    assert "After whitening" in sphere.locator("xpath=..").inner_text()
    softmax = see(page, "#d0 .card:has(h4:text-is('softmax-0')) .sphere")
    assert "no common whitened space" in softmax.locator("xpath=..").inner_text()


def test_the_legend_takes_classes_off_and_on(opened):
    page = opened(*SMALL)
    sphere = see(page, SPHERE)
    every = len(points(sphere))
    chip = page.locator("#d0 .classes [data-class='3']")
    chip.click()
    assert chip.get_attribute("aria-pressed") == "false"
    assert len(points(sphere)) == every - 37
    assert sphere.evaluate("e => e.data[3].x.length") == 9 * 6
    named = [f"<b>{digit}</b>" for digit in range(10) if digit != 3]
    assert sphere.evaluate("e => [...e.data[5].text]") == named
    page.locator("#d0 .classes [data-all=false]").click()
    assert points(sphere) == []
    chip.focus()
    page.keyboard.press("Space")
    assert len(points(sphere)) == 37
    page.locator("#d0 .classes [data-all=true]").click()
    assert len(points(sphere)) == every


def test_pointing_at_an_image_shows_it(opened):
    page = opened(*SMALL)
    sphere = see(page, SPHERE)
    box = sphere.bounding_box()
    page.evaluate(
        "([selector, at]) => { const e = document.querySelector(selector);"
        "dispatchEvent(new PointerEvent('pointermove', at));"
        "e.emit('plotly_hover', {points: [{curveNumber: 2, pointNumber: 7}]}); }",
        [SPHERE, {"clientX": box["x"] + 50, "clientY": box["y"] + 50}],
    )
    hover = page.locator("#hover")
    assert hover.is_visible()
    assert re.search(r"\d\n(recognised|taken for \d) at \d+\xa0%\ntest image 7", hover.inner_text())
    style = hover.locator(".picture").evaluate(
        "e => [getComputedStyle(e).backgroundImage.slice(0, 20), e.style.backgroundPosition]"
    )
    # 359 images in rows of 19, 72 pixels each.
    assert style == ['url("data:image/webp', "-504px 0px"]
    page.evaluate(f"document.querySelector('{SPHERE}').emit('plotly_unhover')")
    assert not hover.is_visible()


def test_the_mouse_finds_an_image(opened):
    page = opened(*SMALL)
    sphere = see(page, SPHERE)
    box = sphere.bounding_box()
    places = product(range(30, int(box["height"]) - 30, 12), range(60, int(box["width"]) - 60, 12))
    for down, across in [*places] * 3:
        page.mouse.move(box["x"] + across, box["y"] + down)
        if page.locator("#hover").is_visible():
            return
    raise AssertionError("no image under the mouse anywhere on the sphere")


def test_keys_turn_the_sphere(opened):
    page = opened(*SMALL)
    sphere = see(page, SPHERE)
    eye = "e => { const {x, y, z} = e.layout.scene.camera.eye; return [x, y, z]; }"
    before = sphere.evaluate(eye)
    sphere.focus()
    page.keyboard.press("ArrowLeft")
    turned = sphere.evaluate(eye)
    assert turned != before
    assert turned[2] == pytest.approx(before[2])
    page.keyboard.press("+")
    assert sum(v * v for v in sphere.evaluate(eye)) < sum(v * v for v in turned)
    page.keyboard.press("Home")
    assert sphere.evaluate(eye) == pytest.approx(before)


def test_a_sphere_out_of_sight_gives_its_context_back_and_keeps_its_view(opened):
    page = opened(*SMALL)
    sphere = see(page, SPHERE)
    page.locator("#d0 .card:not([hidden]) [data-turn=in]").first.click()
    eye = sphere.evaluate("e => e.layout.scene.camera.eye.x")
    page.locator("footer").scroll_into_view_if_needed()
    page.wait_for_function(f"!document.querySelector('{SPHERE}').dataset.drawn")
    assert page.locator("canvas").count() == page.locator(".sphere[data-drawn] canvas").count()
    see(page, SPHERE)
    assert sphere.evaluate("e => e.layout.scene.camera.eye.x") == pytest.approx(eye)


def test_curves_switch_and_follow_the_runs(opened):
    page = opened()
    curves = see(page, "#d0 .curves")
    accuracy = curves.evaluate("e => e.data.map(t => [...t.y])")
    assert len(accuracy) == 6
    page.locator("label", has_text="Validation loss").first.click()
    losses = curves.evaluate("e => e.data.map(t => [...t.y])")
    assert losses != accuracy
    page.locator("#d0 .runs .chip", has_text="softmax-0").click()
    assert curves.evaluate("e => e.data.length") == 4
    hidden = page.locator("#d0 .card:has(h4:text-is('softmax-0'))")
    assert hidden.count() > 0
    assert all(not hidden.nth(n).is_visible() for n in range(hidden.count()))


def test_tables_sort_by_a_click_numbers_by_value_words_by_letter(opened):
    page = opened()
    head = page.locator("[aria-labelledby=d0-t-clusters] thead th", has_text="Calinski")
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    values = [float(text.replace(",", "")) for text in column(page, "d0-t-clusters", 6)]
    assert values == sorted(values, reverse=True)
    assert len(set(values)) > 3
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    values = [float(text.replace(",", "")) for text in column(page, "d0-t-clusters", 6)]
    assert values == sorted(values)
    loss = page.locator("[aria-labelledby=d0-t-compare] thead th", has_text="Log loss")
    loss.locator("button").click()
    assert loss.get_attribute("aria-sort") == "ascending"
    name = page.locator("[aria-labelledby=d0-t-clusters] thead th", has_text="Run")
    name.locator("button").click()
    assert head.get_attribute("aria-sort") is None
    assert column(page, "d0-t-clusters", 1) == sorted(column(page, "d0-t-clusters", 1))


def test_what_goes_on_beyond_an_edge_fades_there(opened):
    page = opened(390, 844)
    table = page.locator("#d0 .scroll[aria-labelledby=d0-t-clusters]")
    faded = "e => [...e.classList].filter(name => name.startsWith('more-'))"
    page.wait_for_function("e => e.classList.contains('more-right')", arg=table.element_handle())
    assert table.evaluate(faded) == ["more-right"]
    table.focus()
    for _ in range(25):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("e => !e.classList.contains('more-right')", arg=table.element_handle())
    assert table.evaluate(faded) == ["more-left"]


def test_the_bar_at_the_top_is_whole_on_a_phone(opened):
    page = opened(390, 844)
    ends = page.locator(".top nav a, #theme").evaluate_all(
        "all => all.map(e => e.getBoundingClientRect()).map(box => [box.left, box.right])"
    )
    assert len(ends) > 2
    assert all(left >= 0 and right <= 390 for left, right in ends)
    assert page.locator(".top nav").evaluate("e => e.scrollWidth <= e.clientWidth")


def test_the_tables_fit_a_desktop(opened):
    page = opened()
    page.locator("#d0-space").scroll_into_view_if_needed()
    wide = page.locator("#d0 .scroll").evaluate_all(
        "all => all.filter(e => e.scrollWidth > e.clientWidth + 1)"
        ".map(e => e.getAttribute('aria-labelledby'))"
    )
    assert wide == []


def test_no_line_separates_a_number_from_its_sign(opened):
    page = opened()
    see(page, "#d0 .bars")
    texts = page.evaluate(
        "[document.body.innerText, ...[...document.querySelectorAll('[aria-label]')]"
        ".map(e => e.getAttribute('aria-label')), ...document.querySelector('#d0 .bars')"
        ".data.map(trace => trace.hovertext || '')]"
    )
    assert sum(len(re.findall("\\d\xa0%", text)) for text in texts) > 20
    loose = [found for text in texts for found in re.findall(r"\d,? [%×±°]|± \d", text)]
    assert loose == []


def test_colours_of_confidence_are_the_runs_own_or_none(opened):
    page = opened()
    muted = page.evaluate("ink('muted')")
    for kind in ("reliability", "angles"):
        figure = see(page, f"#d0 .card:not([hidden]) .{kind}")
        own = figure.evaluate("e => tone(runOf.get(e.dataset.run).colour)")
        named = figure.evaluate(
            "e => e.data.filter(t => t.showlegend !== false && t.name)"
            ".map(t => [t.name, t.line.color, t.line.dash, t.fillcolor])"
        )
        assert len(named) == 2
        assert {colour for _, colour, *_ in named} == {own, muted}
        # Told apart without colours as well: by dashes or by what is filled.
        assert named[0][2:] != named[1][2:]


def printed(page, action="beforeprint"):
    page.evaluate(f"dispatchEvent(new Event('{action}'))")


def test_paper_gets_every_figure_as_wide_as_it_is_and_light(opened):
    page = opened(color_scheme="dark")
    bars = see(page, "#d0 .bars")
    before = bars.evaluate("e => e._fullLayout.width")
    printed(page)
    drawn = page.locator(".plot:not(.sphere):not([hidden] *)").evaluate_all(
        "all => all.map(e => [e.dataset.drawn, Math.round(e._fullLayout.width), e.clientWidth])"
    )
    assert len(drawn) > 8
    assert all(done == "true" and abs(width - room) <= 1 for done, width, room in drawn)
    assert max(room for *_, room in drawn) == 680
    assert page.evaluate("isDark()") is False
    stills = page.locator(".still:not([hidden] *)")
    assert stills.count() == page.locator(".sphere:not([hidden] *)").count()
    for number in range(stills.count()):
        colours = stills.nth(number).evaluate(
            "e => { const p = e.getContext('2d').getImageData(0, 0, e.width, e.height).data;"
            "const all = new Set(); for (let i = 0; i < p.length; i += 4)"
            "if (Math.max(p[i], p[i+1], p[i+2]) - Math.min(p[i], p[i+1], p[i+2]) > 80)"
            "all.add((p[i] >> 5) * 64 + (p[i+1] >> 5) * 8 + (p[i+2] >> 5)); return all.size; }"
        )
        assert colours >= 5
    printed(page, "afterprint")
    assert page.locator(".still").count() == 0
    assert page.evaluate("isDark()") is True
    assert bars.evaluate("e => e._fullLayout.width") == before
    assert [said for said in page.said if said[0] == "error"] == []


def test_printing_the_page_shows_the_spheres(opened):
    page = opened()
    page.evaluate(
        "addEventListener('beforeprint', () => {"
        "window.stills = document.querySelectorAll('.still').length; })"
    )
    page.pdf(format="A4")
    assert page.evaluate("window.stills") == page.locator(".sphere:not([hidden] *)").count() > 3
    assert page.locator(".still").count() == 0


def test_a_sphere_is_seen_from_its_best_side_in_each_space(opened):
    page = opened(*SMALL)
    card = "#d0 .card:not([hidden]):has(h4:text-is('lace-0')) .sphere"
    eye = "e => { const {x, y, z} = e._fullLayout.scene.camera.eye; return [x, y, z]; }"
    home = "(e, space) => runOf.get(e.dataset.run).spheres[space].eye"
    sphere = see(page, card)
    for space, label in (("raw", "Before whitening"), ("whitened", "After whitening")):
        page.locator("label", has_text=label).first.click()
        sphere = see(page, card)
        expected = 1.4 * np.array(sphere.evaluate(home, space))
        assert sphere.evaluate(eye) == pytest.approx(expected, abs=1e-3)
    sphere.focus()
    page.keyboard.press("ArrowLeft")
    turned = sphere.evaluate(eye)
    for label in ("Before whitening", "After whitening"):
        page.locator("label", has_text=label).first.click()
    assert see(page, card).evaluate(eye) == pytest.approx(turned, abs=1e-3)


@pytest.mark.parametrize("how", ["list", "alone"])
def test_a_picked_class_turns_to_the_front(opened, how):
    page = opened(*SMALL)
    sphere = see(page, SPHERE)
    if how == "list":
        page.locator("#d0 [data-front]").select_option("4")
    else:
        page.locator("#d0 .classes [data-all=false]").click()
        page.locator("#d0 .classes [data-class='4']").click()
        assert page.locator("#d0 [data-front]").input_value() == "4"
    eye = sphere.evaluate("e => { const {x, y, z} = e.layout.scene.camera.eye; return [x, y, z]; }")
    centre = sphere.evaluate(
        "e => { const all = e.data[2], of = e.figure.places.map(p => labelsOf(parts[0])[p]);"
        "return ['x', 'y', 'z'].map(a => of.reduce((s, l, n) => s + (l === 4) * all[a][n], 0)); }"
    )
    cosine = np.dot(eye, centre) / np.linalg.norm(eye) / np.linalg.norm(centre)
    assert cosine > 0.995
    page.locator("#d0 [data-front]").select_option("")
    home = sphere.evaluate("e => runOf.get(e.dataset.run).spheres.raw.eye")
    back = sphere.evaluate(
        "e => { const {x, y, z} = e.layout.scene.camera.eye; return [x, y, z]; }"
    )
    assert back == pytest.approx(1.4 * np.array(home), abs=1e-3)


def test_a_click_on_a_cell_of_the_confusion_matrix_shows_its_images(opened):
    page = opened()
    heat = see(page, "#d0 .card:not([hidden]) .confusion")
    box = heat.locator(".heatmaplayer image").bounding_box()
    side = box["width"] / 10
    page.mouse.click(box["x"] + 2.5 * side, box["y"] + 2.5 * side)
    gallery = page.locator("#d0 .card:not([hidden]) [data-cell-of]").first
    gallery.wait_for(state="visible")
    said = gallery.locator("p").inner_text()
    count = int(re.fullmatch(r"2 taken for 2: (\d+) of \d+ images\.", said).group(1))
    assert gallery.locator("li .picture").count() == count > 20
    assert set(gallery.locator("li b").all_inner_texts()) == {"2"}
    page.evaluate("showCell(parts[0], parts[0].runs[0], [0, 1])")
    assert (
        "0 of"
        in page.locator(f"[data-cell-of={page.evaluate('parts[0].runs[0].id')}]").inner_text()
    )


def test_more_images_of_a_confused_pair_are_a_button_away(opened):
    page = opened()
    button = page.locator("#d1 [data-cell]").first
    count = int(re.search(r"(\d+)\xa0×", button.locator("xpath=../..").inner_text()).group(1))
    button.focus()
    page.keyboard.press("Enter")
    gallery = page.locator("#d1 [data-cell-of]").first
    assert f": {count} of" in gallery.locator("p").inner_text()
    assert gallery.locator("li .wrong").count() == count > 6


def test_two_runs_show_what_only_one_gets_right(opened):
    page = opened()
    versus = page.locator("#d0 [data-versus]")
    for right, wrong in (("lace-0", "softmax-0"), ("softmax-0", "lace-1")):
        for place, name in enumerate((right, wrong)):
            versus.locator("select").nth(place).select_option(label=name)
        expected = page.evaluate(
            "names => { const [a, b] = names.map(n => parts[0].runs.find(r => r.name === n));"
            "const [p, q] = [a, b].map(r => [...unpack(r.predicted, Uint16Array)]);"
            "return labelsOf(parts[0]).filter((l, n) => p[n] === l && q[n] !== l).length; }",
            [right, wrong],
        )
        said = versus.locator(".gallery p").inner_text()
        assert said.startswith(
            f"{expected} of the 359 test images on this page: what {wrong} took them for"
        )
        assert versus.locator("li").count() == versus.locator("li .wrong").count() == expected


def test_tables_are_saved_as_csv_and_copied(opened):
    page = opened(permissions=["clipboard-read", "clipboard-write"])
    with page.expect_download() as saved:
        page.locator("[data-csv=d0-t-runs]").click()
    text = saved.value.path().read_text(encoding="utf-8-sig")
    rows = list(csv.reader(io.StringIO(text)))
    assert saved.value.suggested_filename.endswith("All-runs.csv")
    assert [row[0] for row in rows] == ["Run", *column(page, "d0-t-runs", 1)]
    assert {len(row) for row in rows} == {len(rows[0])}
    assert float(rows[1][1]) == pytest.approx(float(column(page, "d0-t-runs", 2)[0]), abs=0.01)
    page.locator("[data-copy=d0-t-runs]").click()
    page.locator("[data-copy=d0-t-runs]", has_text="Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert [line.split("\t") for line in copied.splitlines()] == rows


def test_figures_are_saved_as_pictures(opened):
    page = opened(*SMALL)
    start = {"svg": b"<svg", "png": b"\x89PNG"}
    for kind, format in (("bars", "svg"), ("bars", "png"), ("sphere", "png")):
        figure = see(page, f"#d0 .plot.{kind}:not([hidden] *)")
        with page.expect_download() as saved:
            figure.locator("xpath=..").locator(f"[data-save={format}]").click()
        assert saved.value.suggested_filename.endswith(f"{kind}.{format}")
        assert saved.value.path().read_bytes().startswith(start[format])
    assert [said for said in page.said if said[0] == "error"] == []


def test_tables_sort_by_the_keyboard_with_what_is_missing_last(opened):
    page = opened()
    head = page.locator("[aria-labelledby=d0-t-compare] thead th", has_text="whitened")
    head.locator("button").focus()
    for key, state in (("Enter", "descending"), ("Space", "ascending")):
        page.keyboard.press(key)
        assert head.get_attribute("aria-sort") == state
        assert column(page, "d0-t-compare", 8)[-1] == "–"


def test_markup_in_names_stays_text(opened):
    page = opened(*SMALL)
    see(page, "#d1 .confusion")
    see(page, "#d1 .sphere")
    assert page.evaluate("window.broken") is None
    assert page.locator("main img, main b b, main i").count() == 0
    chips = page.locator("#d1 .classes [data-class]").all_inner_texts()
    assert chips == NAMES
    ticks = page.locator("#d1 .confusion .ytick text").all_text_contents()
    assert ticks[0] == "<b>bold</b>"
    assert ticks[2] == "a & b"
    assert page.locator("#d1 h4").first.inner_text() == "<i>marked<i>"
    page.evaluate(
        "document.querySelector('#d1 .sphere').emit('plotly_hover', "
        "{points: [{curveNumber: 3, pointNumber: 6}]})"
    )
    assert page.locator("#hover p").inner_text() == f"signature of {NAMES[1]}"


def test_markup_stays_text_in_labels_that_follow_the_mouse(opened):
    page = opened()
    heat = see(page, "#d1 .confusion")
    box = heat.locator(".heatmaplayer image").bounding_box()
    page.mouse.move(box["x"] + 4, box["y"] + 4)
    page.wait_for_selector("#hover:not([hidden])")
    said = page.locator("#hover p").inner_text()
    assert re.fullmatch(r"<b>bold</b> taken for <b>bold</b>\n\d+ of \d+ images", said)
    assert not page.locator("#hover .picture").is_visible()
    curves = see(page, "#d1 .curves")
    curves.locator(".point").first.hover(force=True)
    page.wait_for_selector("#d1 .curves .hovertext")
    assert "<i>marked<i>" in curves.locator(".hovertext").text_content()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_follows_the_scheme_of_the_system_and_the_button(opened, scheme):
    page = opened(color_scheme=scheme)
    bars = see(page, "#d0 .bars")
    shade = "() => getComputedStyle(document.body).backgroundColor"
    text = "e => e.layout.font.color"
    first = (page.evaluate(shade), bars.evaluate(text))
    button = page.locator("#theme")
    assert button.get_attribute("aria-pressed") == str(scheme == "dark").lower()
    button.click()
    assert button.get_attribute("aria-pressed") == str(scheme != "dark").lower()
    second = (page.evaluate(shade), bars.evaluate(text))
    assert {first[0], second[0]} == {"rgb(246, 247, 249)", "rgb(17, 21, 27)"}
    assert first[1] != second[1]
    button.click()
    assert page.evaluate(shade) == first[0]


def test_says_what_figures_show_and_names_every_control(opened):
    page = opened()
    unnamed = page.evaluate(
        """[...document.querySelectorAll("[role=img], [role=application], [role=group]")]
            .filter(e => !e.getAttribute("aria-label")).length
        + [...document.querySelectorAll("button, a, summary")]
            .filter(e => !(e.getAttribute("aria-label") || e.textContent.trim())).length
        + [...document.querySelectorAll("input")].filter(e => !e.labels.length).length"""
    )
    assert unnamed == 0
    levels = page.locator("h1, h2, h3, h4, h5").evaluate_all("all => all.map(e => +e.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_tab_reaches_the_first_controls_in_order(opened):
    page = opened()
    reached = []
    for _ in range(5):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent.trim()"))
    assert reached[0] == "Skip to the figures"
    assert "Dark mode" in reached


def test_nothing_moves_for_those_who_want_it_still(opened):
    page = opened(reduced_motion="reduce")
    moving = page.evaluate(
        "[...document.querySelectorAll('*')].filter(e => { const s = getComputedStyle(e);"
        "return s.animationName !== 'none' || s.transitionDuration.split(', ')"
        ".some(t => t !== '0s') || s.scrollBehavior === 'smooth'; }).length"
    )
    assert moving == 0


def test_reads_without_scripts(opened, chromium, made):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(made.page.as_uri())
    assert page.locator("[aria-labelledby=d0-t-runs] tbody tr").count() == 3
    assert page.locator("noscript").count() == 1
    assert page.locator(".pictures .picture").count() > 0
    assert page.locator(".hero .ball svg").first.is_visible()
    dead = page.locator("button, select, .plot").filter(visible=True)
    assert all(dead.evaluate_all("all => all.map(e => Boolean(e.closest('thead')))"))
    context.close()
