"""A Django view that takes effect once for each Idempotency-Key, in one file. In two commands:

pip install semel django
python django_view.py runserver 8000 --noreload

Then run this twice; you may kill the server in between:

curl http://127.0.0.1:8000/charges -H 'Idempotency-Key: order-7' -H 'X-User: ada' --json '{"amount": 5}'

In your own project, put the statements of once.ddl() into a migration (RunSQL), and use request.user.pk as the scope.
"""

from __future__ import annotations

import json
import os
import sys

from django.conf import settings
from django.core.management import execute_from_command_line
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from semel import once

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1", "localhost"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("SHOP", "shop.sqlite3")}},
    ROOT_URLCONF=__name__,
    SECRET_KEY="of this example",  # noqa: S106 - nothing is signed with it
    USE_TZ=True,
)

from semel.once.django import once_per_key  # noqa: E402 - Django must be configured before this import


@csrf_exempt
@once_per_key(scope=lambda request: request.headers.get("X-User", ""))
def charge(request: HttpRequest) -> HttpResponse:
    """Charge. One transaction stores these writes and the answer, so a retry gets the first answer."""
    try:
        amount = int(json.loads(request.body)["amount"])
    except (KeyError, TypeError, ValueError):
        return HttpResponseBadRequest('Send {"amount": a number of cents}.')
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO charges (amount) VALUES (%s)", [amount])
        cursor.execute("SELECT count(*), sum(amount) FROM charges")
        count, total = cursor.fetchone()
    return JsonResponse({"charges": count, "total": total}, status=201)


urlpatterns = [path("charges", charge)]


def make_tables() -> None:
    """Create the tables; in a project, migrations do this."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS charges (amount integer)")
        for statement in once.ddl("sqlite").split(";"):
            if statement.strip():
                cursor.execute(statement)


if __name__ == "__main__":
    make_tables()
    execute_from_command_line(sys.argv)
