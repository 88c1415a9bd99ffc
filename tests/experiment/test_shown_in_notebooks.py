"""In a notebook a result shows itself."""

import re

import apiece


def cells(shown):
    return dict(re.findall(r"<tr><th>([^<]*)</th><td>([^<]*)</td></tr>", shown._repr_html_()))


def test_a_fit_shows_what_was_trained_and_what_it_cost():
    found = apiece.fit("fed_avg", federation=apiece.data.digits(clients=4), rounds=2)
    told = cells(found)
    assert told["method"] == "fed_avg" and told["rounds"] == "2" and told["federation"] == "digits, 4 clients"
    assert told["gradients"] == f"{found.costs['gradients']:,}"
    assert float(told["validation loss"]) == float(f"{found.curve[-1]['validation_loss']:.4g}")


def test_an_advice_shows_its_answer_as_text():
    tried = [apiece.advise.Advice.model_fields["tried"].annotation.__args__[0](name="<b>", loss=0.5)]
    advice = apiece.advise.Advice.model_construct(answer=["Share <i>one</i>."], tried=tried, next=["apiece run"])
    shown = advice._repr_html_()
    assert "Share &lt;i&gt;one&lt;/i&gt;." in shown and "<th>&lt;b&gt;</th><td>0.5000</td>" in shown
    assert "<code>apiece run</code>" in shown
